import { tokenSurrogate } from './grpo.ts';
import { definePolicyAlgorithm } from './policy.ts';

/** DAPO (Yu et al. 2025): GRPO with a higher upper clip, token mean, dynamic sampling and an overlong penalty. */
export const dapo = definePolicyAlgorithm({
  name: 'dapo',
  summary: 'GRPO with a higher upper clip, token mean, no KL, equal groups dropped and overlong responses punished',
  paper: 'Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale"',
  advantage: 'group-z',
  aggregation: 'token',
  klIn: 'none',
  // the paper's ramp is 4,096 of 20,480 tokens
  defaults: { clipLow: 0.2, clipHigh: 0.28, dropEqualGroups: true, overlongRamp: 0.2 },
  terms: tokenSurrogate,
});
