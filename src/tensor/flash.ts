/**
 * libtorch's flash-attention kernels over a packed batch (CUDA, half precision). The operator is internal, and only
 * this file calls it.
 */
import { TensorError } from './engine/error.ts';
import { callOperator, internalOperator, type Operator } from './operator.ts';
import type { Tensor } from './tensor.ts';

const NAME = '_flash_attention_forward';
let found: Operator | null | undefined;

/** The operator with sliding windows (libtorch 2.4 and later), or null. */
function flashOperator(): Operator | null {
  if (found === undefined) {
    const any = internalOperator(NAME);
    found = any?.arguments.some((argument) => argument.name === 'window_size_left') ? any : null;
  }
  return found;
}

/** Whether the flash kernels support queries [tokens, heads, headDim] of this dtype and head size. */
export function flashTakes(q: Tensor): boolean {
  const half = q.dtype === 'bfloat16' || q.dtype === 'float16';
  return half && q.size(2) % 8 === 0 && q.size(2) <= 256 && flashOperator() !== null;
}

/** A packed batch in the form that the flash kernels take. */
export interface FlashInputs {
  /** [tokens, heads, headDim] and [tokens, kvHeads, headDim]. */
  q: Tensor;
  k: Tensor;
  v: Tensor;
  /** Where each sequence begins, and the total at the end: [sequences + 1], int32, on the same device. */
  cuSeqlens: Tensor;
  longest: number;
  scale: number;
  /** How many tokens before itself a query sees; null for all. */
  back: number | null;
  dropout: number;
}

/** Causal attention within each sequence, [tokens, heads, headDim]. */
export function flashAttention(inputs: FlashInputs): Tensor {
  const { q, k, v, cuSeqlens, longest, scale, back, dropout } = inputs;
  const op = flashOperator();
  if (op === null) throw new TensorError(NAME, 'flashAttention: this libtorch has no flash kernels.');
  const fault = faultOf(inputs);
  if (fault !== null) throw new TensorError(NAME, `flashAttention: ${fault}.`);
  // Queries and keys have the same lengths. The flags: causal, no debug mask.
  const args = [q, k, v, cuSeqlens, cuSeqlens, longest, longest, dropout, true, false];
  const window = { window_size_left: back, window_size_right: back === null ? null : 0 };
  return (callOperator(op, [...args, { scale, ...window }]) as Tensor[])[0] as Tensor;
}

/** The first fault of the inputs, or null. libtorch divides by the sizes before it checks them, and never checks the lengths. */
function faultOf({ q, k, v, cuSeqlens, longest }: FlashInputs): string | null {
  const [tokens = 0, heads = 0, headDim = 0] = q.shape;
  const [, kvHeads = 0] = k.shape;
  if (q.shape.length !== 3 || tokens * heads * headDim === 0) return `q has to be [tokens, heads, headDim], not ${q}`;
  if (k.shape.join() !== `${tokens},${kvHeads},${headDim}` || !(kvHeads > 0) || heads % kvHeads !== 0)
    return `k ${k} does not fit q ${q}`;
  if (v.shape.join() !== k.shape.join()) return `v ${v} does not fit k ${k}`;
  if (cuSeqlens.dtype !== 'int32' || cuSeqlens.shape.length !== 1 || cuSeqlens.size(0) < 2)
    return `cuSeqlens has to be int32[sequences + 1], not ${cuSeqlens}`;
  for (const other of [k, v, cuSeqlens])
    if (other.device !== q.device) return `q is on ${q.device}, ${other} on ${other.device}`;
  return longest >= 1 && longest <= tokens ? null : `longest is ${longest} of ${tokens} tokens`;
}
