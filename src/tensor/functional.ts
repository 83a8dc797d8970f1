/** Functions of several tensors that layers and losses are built from. */
import './conversions.ts';
import './methods.ts';
import type { Device } from './engine/dtype.ts';
import { cudaBytes } from './engine/free-memory.ts';
import { aten, findOperator } from './operator.ts';
import { hasCudaKernels } from './runtime.ts';
import type { Tensor } from './tensor.ts';

/** x·weightᵀ + bias, with weight [out, in] (native/ops/linear.cc). */
export function linear(x: Tensor, weight: Tensor, bias?: Tensor | null): Tensor {
  return aten('attune::linear', x, weight, bias ?? null);
}

/** The rows of `weight` [count, size] at `ids`. */
export function embedding(weight: Tensor, ids: Tensor): Tensor {
  return aten('embedding', weight, ids);
}

/** Whether libtorch 1.13 has no kernel of `layer_norm` and `gelu` for this tensor: float16 on a CPU. */
const lacksHalf = (x: Tensor) => x.dtype === 'float16' && x.device === 'cpu';

/** x·Φ(x), or its tanh approximation (Hendrycks & Gimpel, 2016). */
export function gelu(x: Tensor, approximate: 'none' | 'tanh' = 'none'): Tensor {
  return lacksHalf(x) ? x.to('float32').gelu(approximate).to(x.dtype) : x.gelu(approximate);
}

/** (x − mean)/√(variance + ε)·weight + bias over the last dimension (Ba et al. 2016). */
export function layerNorm(x: Tensor, weight: Tensor | null, bias: Tensor | null, eps: number): Tensor {
  if (lacksHalf(x)) {
    const wide = (each: Tensor | null) => each?.to('float32') ?? null;
    return layerNorm(x.to('float32'), wide(weight), wide(bias), eps).to(x.dtype);
  }
  return aten('layer_norm', x, [x.size(-1)], weight, bias, eps, false);
}

/** x / √(mean x² + ε) · weight, the mean in f32 (Zhang & Sennrich, 2019; rounding as in Llama). */
export function rmsNorm(x: Tensor, weight: Tensor, eps: number): Tensor {
  // attune::rms_norm computes in f32, which is too coarse for float64.
  if (x.dtype !== 'float64' && x.dtype === weight.dtype && (x.device === 'cpu' || hasCudaKernels()))
    return aten('attune::rms_norm', x, weight, eps);
  if (findOperator('_fused_rms_norm') !== null)
    return aten<[Tensor, Tensor]>('_fused_rms_norm', x, [x.size(-1)], weight, eps)[0];
  const wide = x.dtype === 'float32' || x.dtype === 'float64' ? x : x.to('float32');
  const scale = wide.square().mean(-1, true).add(eps).rsqrt();
  const normed = wide.mul(scale);
  return (normed.dtype === x.dtype ? normed : normed.to(x.dtype)).mul(weight);
}

/**
 * x + added (or x if `added` is null) and its `rmsNorm`, in one pass over the memory on CUDA (native/ops/rms_norm.cc).
 */
export function addRmsNorm(
  x: Tensor,
  added: Tensor | null,
  weight: Tensor,
  eps: number,
): [sum: Tensor, normed: Tensor] {
  if (x.device === 'cpu' || hasCudaKernels()) return aten('attune::add_rms_norm', x, added, weight, eps);
  const sum = added === null ? x : x.add(added);
  return [sum, rmsNorm(sum, weight, eps)];
}

/** In training, sets each element to 0 with probability `p` and scales the rest by 1/(1 − p). */
export function dropout(x: Tensor, p: number, training: boolean): Tensor {
  return aten('dropout', x, p, training);
}

/**
 * Rows whose logits are computed at once: 64 MiB of f32 on the CPU; 600 MiB on CUDA, whose products are fast only with
 * many rows, in whole tiles.
 */
export function logprobChunk(vocabulary: number, device: string): number {
  const [bytes, tile] = device === 'cpu' ? [64 * 2 ** 20, 1] : [600 * 2 ** 20, 256];
  const rows = Math.max(16, Math.min(4096, Math.floor(bytes / (4 * vocabulary))));
  return rows < tile ? rows : rows - (rows % tile);
}

/** The share of a device's memory that logits kept for backward may take. */
const KEPT_SHARE = 1 / 16;

/**
 * Whether forward keeps all logits in f32 for backward, which then has three products instead of four. It depends on
 * sizes and the device alone, so that a run computes the same every time.
 */
export function keepsLogits(rows: number, vocabulary: number, device: Device): boolean {
  return 4 * rows * vocabulary <= KEPT_SHARE * cudaBytes(device);
}

/**
 * log softmax(hidden·weightᵀ / temperature) at `targets`, and the entropy, without holding all logits unless there is
 * room for them (`keepsLogits`; native/ops/linear_logprob.cc). A target of −1 gives 0 and no gradient.
 */
export function linearLogprob(
  hidden: Tensor,
  weight: Tensor,
  targets: Tensor,
  options: { temperature?: number; chunk?: number; keep?: boolean } = {},
): { logp: Tensor; entropy: Tensor } {
  const chunk = options.chunk ?? logprobChunk(weight.size(0), hidden.device);
  const [logp, entropy] = aten<[Tensor, Tensor]>(
    'attune::linear_logprob',
    hidden,
    weight,
    targets,
    options.temperature ?? 1,
    chunk,
    options.keep ?? keepsLogits(hidden.size(0), weight.size(0), hidden.device),
  );
  return { logp, entropy };
}

/** A head and the hidden states that it turns into logits: [rows, size] and [vocabulary, size]. */
export interface HeadRows {
  hidden: Tensor;
  weight: Tensor;
}

/** How two distributions over a vocabulary are compared. */
export interface DivergenceOptions {
  /** Both are softmax(logits / temperature); 1 unless given. */
  temperature?: number;
  /** KL(student‖teacher) instead of KL(teacher‖student). */
  reverse?: boolean;
  /**
   * Compares the teacher's `top` likeliest tokens and all others together as one. 0, the default, compares the whole
   * vocabulary.
   */
  top?: number;
  chunk?: number;
}

/** Rows whose divergence is computed at once: half of those of `logprobChunk`, since two distributions are in memory. */
function divergenceChunk(vocabulary: number, device: string): number {
  return Math.max(1, Math.floor(logprobChunk(vocabulary, device) / 2));
}

/**
 * The memory of a chunk: both distributions and one more buffer in f32; on CUDA also the product that a buffer is made
 * from.
 */
export function divergenceBytes(rows: number, vocabulary: number, device: string): number {
  const buffers = device === 'cpu' ? 3 : 4;
  return 4 * buffers * Math.min(rows, divergenceChunk(vocabulary, device)) * vocabulary;
}

/**
 * The KL divergence between a student's next-token distribution and a frozen teacher's, row by row, with its gradient
 * for the student, in chunks of rows (native/ops/training/linear_divergence.cc). Also returns, without a gradient, the
 * teacher's log-prob of each target, and 1 if the target is the teacher's likeliest token.
 */
export function linearDivergence(
  student: HeadRows,
  teacher: HeadRows,
  targets: Tensor,
  options: DivergenceOptions = {},
): { divergence: Tensor; teacherLogp: Tensor; agrees: Tensor } {
  const { temperature = 1, reverse = false, top = 0 } = options;
  const { hidden, weight } = student;
  const chunk = options.chunk ?? divergenceChunk(weight.size(0), hidden.device);
  const [divergence, teacherLogp, agrees] = aten<[Tensor, Tensor, Tensor]>(
    'attune::linear_divergence',
    ...[hidden, weight, teacher.hidden, teacher.weight, targets],
    ...[temperature, reverse, top, chunk],
  );
  return { divergence, teacherLogp, agrees };
}
