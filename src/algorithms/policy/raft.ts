import { definePolicyAlgorithm } from './policy.ts';
import { scoreTerm } from './score.ts';

/**
 * RAFT (Dong et al. 2023): supervised fine-tuning on the best sampled response of each group, with the mean over
 * tokens.
 */
export const raft = definePolicyAlgorithm({
  name: 'raft',
  summary: 'log-likelihood of the best response of each group; the others are left out',
  paper: 'Dong et al. 2023, "RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment"',
  keeps: 'best',
  advantage: 'one',
  aggregation: 'token',
  klIn: 'loss',
  terms: scoreTerm,
});
