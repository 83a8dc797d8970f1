/** Which decoders native decoding takes (generate/plan.ts): those of the commonest kind of block. */
import type { Decoder } from '../decoder/decoder.ts';
import type { Layer } from '../decoder/layer.ts';
import type { MergedWeights } from './merged-weights.ts';

/** Whether every block is of the commonest kind, its adapters merged. */
export function isPlain({ spec, weights, layers }: Decoder, merged: MergedWeights | null): boolean {
  const { attention, mlp, norm, normPlace, parallel, positions } = spec;
  if (!weights.lm || weights.positions !== null || weights.embeddingNorm !== null) return false;
  if (weights.finalNorm.kind !== 'rms' || norm.kind !== 'rms') return false;
  if (normPlace !== 'pre' || parallel !== false || !mlp.gated || mlp.activation !== 'silu') return false;
  if (attention.layout !== 'blocked' || positions.kind === 'alibi' || attention.qkNorm?.over === 'all') return false;
  const eps = layers[0]?.weights.attentionNorm?.eps;
  return layers.every((layer) => isPlainLayer(layer, eps, merged));
}

function isPlainLayer({ weights, projections }: Layer, eps: number | undefined, merged: MergedWeights | null): boolean {
  const { attentionNorm, mlpNorm } = weights;
  if (eps === undefined || attentionNorm?.eps !== eps || mlpNorm?.eps !== eps) return false;
  return projections.every((each) => each.adapter === null || merged?.weightOf(each));
}
