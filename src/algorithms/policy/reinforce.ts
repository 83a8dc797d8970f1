import { definePolicyAlgorithm } from './policy.ts';
import { scoreTerm } from './score.ts';

/** REINFORCE (Williams 1992) with the step's mean reward as baseline. */
export const reinforce = definePolicyAlgorithm({
  name: 'reinforce',
  summary: 'policy gradient with the step’s mean reward as baseline',
  paper: 'Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning"',
  advantage: 'batch-mean',
  aggregation: 'sum',
  klIn: 'reward',
  defaults: { klCoef: 0.01 },
  terms: scoreTerm,
});
