import { definePolicyAlgorithm } from './policy.ts';
import { scoreTerm } from './score.ts';

/** MaxRL (Tajwar et al. 2026): the policy gradient of the log pass rate. */
export const maxrl = definePolicyAlgorithm({
  name: 'maxrl',
  aliases: ['max-rl'],
  summary: 'policy gradient of log pass rate: prompts that rarely succeed weigh more',
  paper: 'Tajwar et al. 2026, "Maximum Likelihood Reinforcement Learning"',
  advantage: 'max-rl',
  aggregation: 'sum',
  klIn: 'none',
  terms: scoreTerm,
});
