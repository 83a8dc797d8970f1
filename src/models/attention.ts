/**
 * Attention over a packed batch: flash kernels with cumulative lengths for half precision on CUDA, our own blocked operator
 * (native/packed_attention.cc) everywhere else.
 */
import { aten, findOperator, type Tensor } from '../tensor/index.ts';
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
  /** ALiBi: what is added per head and key position, [heads, ≥ longest]. */
  bias: Tensor | null;
  dropout: number;
}

/** [tokens, heads, headDim] */
export function packedAttention(inputs: AttentionInputs): Tensor {
  const { q, k, v, batch, scale, window, bias, dropout } = inputs;
  if (batch.cuSeqlens !== undefined && bias === null && flashTakes(q)) {
    const { cuSeqlens, longest } = batch;
    const back = window === null || window >= longest ? -1 : window - 1;
    const ahead = back < 0 ? -1 : 0;
    return aten<Tensor[]>(
      '_flash_attention_forward',
      q,
      k,
      v,
      cuSeqlens,
      cuSeqlens,
      longest,
      longest,
      dropout,
      true,
      false,
      {
        scale,
        window_size_left: back < 0 ? null : back,
        window_size_right: back < 0 ? null : ahead,
      },
    )[0] as Tensor;
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
  );
}

/** Half precision and head sizes that the kernels are built for. */
function flashTakes(q: Tensor): boolean {
  const half = q.dtype === 'bfloat16' || q.dtype === 'float16';
  return half && q.size(2) % 8 === 0 && q.size(2) <= 256 && hasFlash();
}

/** The window arguments came with 2.4; older ones take the other path. */
function hasFlash(): boolean {
  return (
    findOperator('_flash_attention_forward')?.arguments.some((argument) => argument.name === 'window_size_left') ??
    false
  );
}
