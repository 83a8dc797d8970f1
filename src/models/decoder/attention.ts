/**
 * Attention over a packed batch. Half precision on CUDA uses our kernels (native/ops/training/causal_attention.cc) for
 * short and medium sequences, and flash kernels with cumulative lengths for long ones; everything else uses our blocked
 * operator (native/ops/packed_attention.cc). Shared prefixes (`packShared`) work in our kernels and, on the CPU in f32
 * and half precision, in that operator.
 */

import { flashAttention, flashTakes } from '../../tensor/flash.ts';
import { aten, type Device, type DType, scope, type Tensor, zeros } from '../../tensor/index.ts';
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
  const isCausal = bias === null && dropout === 0 && (window === null || window >= batch.longest);
  if (isCausal && batch.places !== undefined && hasKernels(q, k, batch)) {
    const { sequences, families, prefixTokens } = batch.places;
    return aten('attune::causal_attention', q, k, v, sequences, scale, families, prefixTokens);
  }
  if (batch.cuSeqlens !== undefined && batch.prefixes === undefined && bias === null && flashTakes(q)) {
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

/**
 * Whether our kernels take this batch: any batch with prefixes, and others if they are no slower than the flash
 * kernels.
 */
function hasKernels(q: Tensor, k: Tensor, batch: PackedBatch): boolean {
  const longest = aten<number>('attune::causal_attention_longest', q, k);
  return longest > 0 && (batch.prefixes !== undefined || meanLength(batch) <= longest);
}

/** The attention of a model's layers, without dropout. */
export interface LayersAttention {
  heads: number;
  kvHeads: number;
  headDim: number;
  windows: readonly (number | null)[];
  hasBias: boolean;
}

/** The longest sequence that should have a prefix, in tokens; 0 if attention does not support prefixes. */
export function longestWithPrefix(layers: LayersAttention, device: Device, dtype: DType): number {
  if (device === 'cpu') return dtype === 'float64' ? 0 : Number.POSITIVE_INFINITY;
  if (layers.hasBias || layers.windows.some((window) => window !== null)) return 0;
  return longestOfKernels(layers, device, dtype);
}

const knownLongest = new Map<string, number>();

/** `attune::causal_attention_longest` for such heads. */
function longestOfKernels({ heads, kvHeads, headDim }: LayersAttention, device: Device, dtype: DType): number {
  const key = `${device} ${dtype} ${heads} ${kvHeads} ${headDim}`;
  const known = knownLongest.get(key);
  if (known !== undefined) return known;
  const longest = scope(() => {
    const [q, k] = [heads, kvHeads].map((count) => zeros([1, count, headDim], { device, dtype }));
    return aten<number>('attune::causal_attention_longest', q, k);
  });
  knownLongest.set(key, longest);
  return longest;
}

/** The length of the average token's sequence, Σn² / Σn, since the work grows with n². */
function meanLength({ starts }: PackedBatch): number {
  let squares = 0;
  for (let s = 0; s + 1 < starts.length; s++) squares += ((starts[s + 1] as number) - (starts[s] as number)) ** 2;
  return squares / (starts.at(-1) as number);
}
