import { definePolicyAlgorithm } from './policy.ts';
import { scoreTerm } from './score.ts';

/** RLOO (Ahmadian et al. 2024): REINFORCE with the mean reward of the prompt's other responses as baseline. */
export const rloo = definePolicyAlgorithm({
  name: 'rloo',
  summary: 'policy gradient with the other responses to the prompt as baseline',
  paper: 'Ahmadian et al. 2024, "Back to Basics: Revisiting REINFORCE Style Optimization for RLHF"',
  advantage: 'leave-one-out',
  aggregation: 'sum',
  klIn: 'reward',
  defaults: { klCoef: 0.01 },
  terms: scoreTerm,
});
