import { tokenSurrogate } from './grpo.ts';
import { definePolicyAlgorithm } from './policy.ts';

/** Dr. GRPO (Liu et al. 2025): GRPO without the division by the group's standard deviation and by response length. */
export const drgrpo = definePolicyAlgorithm({
  name: 'drgrpo',
  aliases: ['dr-grpo'],
  summary: 'GRPO without its two biases: no division by the group’s spread, none by the response’s length',
  paper: 'Liu et al. 2025, "Understanding R1-Zero-Like Training: A Critical Perspective"',
  advantage: 'group-centred',
  aggregation: 'constant',
  klIn: 'loss',
  defaults: { clipLow: 0.2, clipHigh: 0.2, klCoef: 0 },
  terms: tokenSurrogate,
});
