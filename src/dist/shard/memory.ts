/**
 * What a rank holds in each mode of `--shard`: the memory model of docs/distributed.md, with Gloo, measured by `npm run
 * bench -- dist-memory`. Activations are extra.
 */
import type { Shard } from './optimizer.ts';

/** The sizes of a model that ranks train together. */
export interface DealtModel {
  /**
   * Bytes of the model's weights without adapters: of all, of the largest block, and of those outside blocks
   * (embedding, norm, head).
   */
  weights: { whole: number; block: number; rest: number };
  /** Trained elements, and the bytes of each. */
  trained: number;
  trainedSize: number;
  /** Elements of the largest block, and of the largest tensor. */
  block: number;
  largest: number;
  /** Only adapters are trained: their buckets are small. */
  isAdapter: boolean;
}

/** Bytes on each rank while it updates. */
export interface RankBytes {
  weights: number;
  /** Gradients including those in flight, Adam's moments and f32 masters. */
  optimizer: number;
}

export function rankBytes(model: DealtModel, shard: Shard, ranks: number): RankBytes {
  const { weights, trained, trainedSize, isAdapter } = model;
  const isHalf = trainedSize < 4;
  const gradients = trained * trainedSize;
  const state = trained * (isHalf ? 12 : 8);
  if (ranks === 1) return { weights: weights.whole, optimizer: gradients + state };
  // The block at work and the next one, being gathered.
  const held = shard === 'full' ? weights.whole / ranks + weights.rest + 2 * weights.block : weights.whole;
  const own = shard === 'none' ? state : state / ranks;
  if (isAdapter) return { weights: held, optimizer: own + gradients };
  return {
    weights: held,
    optimizer: own + (shard === 'none' ? gradients + (isHalf ? 2 * model.largest : 0) : dealt()),
  };

  /**
   * Gradients whose sums are sharded. The embedding is sent last: half-precision ones in f32, and another copy into
   * which Gloo receives the sum.
   */
  function dealt(): number {
    const sums = (4 * trained) / ranks;
    const travelling = (isHalf ? 8 : 4) * model.largest;
    if (shard === 'optimizer') return isHalf ? Math.max(gradients, sums + travelling) : gradients + travelling;
    // Before that: one block's gradients, three blocks in f32, and the two blocks of weights, which are freed by then.
    const blocks = (isHalf ? trainedSize + 12 : 12) * model.block;
    return sums + Math.max(blocks, travelling - 2 * weights.block);
  }
}
