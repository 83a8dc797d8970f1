/**
 * Attention over a packed batch: flash kernels with cumulative lengths for half precision on CUDA, our own blocked operator
 * (native/ops/packed_attention.cc) everywhere else. Shared prefixes (`packShared`) work only in ours, in f32 on the CPU.
 */

import { flashAttention, flashTakes } from '../../tensor/flash.ts';
import { aten, type Tensor } from '../../tensor/index.ts';
import type { PackedBatch } from './batch.ts';

export interface AttentionInputs {
  /** [tokens, heads, headDim] and [tokens, kvHeads, headDim]. */
  q: Tensor;
  k: Tensor;
  v: Tensor;
  batch: PackedBatch;
  scale: number;
  /** How many tokens back a query sees, itself included. */
  window: number | null;
  /** ALiBi's bias per head and key position, [heads, ≥ longest]. */
  bias: Tensor | null;
  dropout: number;
}

/** [tokens, heads, headDim] */
export function packedAttention(inputs: AttentionInputs): Tensor {
  const { q, k, v, batch, scale, window, bias, dropout } = inputs;
  if (batch.cuSeqlens !== undefined && bias === null && flashTakes(q)) {
    const { cuSeqlens, longest } = batch;
    const back = window === null || window >= longest ? null : window - 1;
    return flashAttention({ q, k, v, cuSeqlens, longest, scale, back, dropout });
  }
  return aten(
    'attune::packed_attention',
    q,
    k,
    v,
    batch.starts,
    scale,
    window === null || window >= batch.longest ? 0 : window,
    bias,
    dropout,
    batch.prefixes ?? [],
  );
}
