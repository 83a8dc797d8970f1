import { clippedSurrogate } from './clipping.ts';
import { definePolicyAlgorithm, type TermInput, type Terms } from './policy.ts';

/** The clipped surrogate of each token's ratio. */
export function tokenSurrogate({ ratio, advantages, options }: TermInput): Terms {
  return clippedSurrogate(ratio, advantages, options.clipLow, options.clipHigh);
}

/** GRPO (Shao et al. 2024): the clipped surrogate with rewards standardised within each prompt's group. */
export const grpo = definePolicyAlgorithm({
  name: 'grpo',
  summary: 'clipped surrogate with rewards standardised within each prompt’s group, and a KL term in the loss',
  paper: 'Shao et al. 2024, "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models"',
  advantage: 'group-z',
  aggregation: 'sequence',
  klIn: 'loss',
  defaults: { clipLow: 0.2, clipHigh: 0.2, klCoef: 0.01 },
  terms: tokenSurrogate,
});
