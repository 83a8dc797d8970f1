/**
 * The cost model of docs/distributed.md: what a rank sends in a step in each mode of `--shard`, and how long that takes
 * at measured bandwidths. Every collective has its own bandwidth: Gloo's reduce-scatter and all-gather take as long as
 * its all-reduce of the same tensor, which moves twice as much.
 */
import type { Shard } from './optimizer.ts';

/** Bytes that a rank sends in each collective; or bytes per second. */
export interface Exchanged {
  allReduce: number;
  reduceScatter: number;
  allGather: number;
}

/**
 * Bytes of a step in which every rank has one micro-batch. Gradients are sent in f32, weights in their own dtype; with
 * `full` a block's weights are gathered twice.
 */
export function exchangedBytes(shard: Shard, parameters: number, ranks: number, weightBytes = 2): Exchanged {
  const part = (ranks - 1) / ranks;
  const gradients = 4 * parameters * part;
  const weights = weightBytes * parameters * part;
  if (shard === 'none') return { allReduce: 2 * gradients, reduceScatter: 0, allGather: 0 };
  return { allReduce: 0, reduceScatter: gradients, allGather: shard === 'full' ? 2 * weights : weights };
}

/** Seconds of the exchange if none of it overlaps with computation. */
export function exchangeSeconds(bytes: Exchanged, bytesPerSecond: Exchanged): number {
  const names = ['allReduce', 'reduceScatter', 'allGather'] as const;
  return names.reduce((sum, name) => sum + bytes[name] / bytesPerSecond[name], 0);
}
