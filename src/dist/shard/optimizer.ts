/** The optimiser of a world: whole on every rank, or sharded over the ranks. */
import { AdamW, type AdamWOptions } from '../../nn/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { World } from '../world.ts';
import { ShardedAdamW } from './sharded-adamw.ts';

/** What is sharded: nothing; the optimiser's state and the gradients (ZeRO-2); the weights too (ZeRO-3). */
export const shardKinds = ['none', 'optimizer', 'full'] as const;
export type Shard = (typeof shardKinds)[number];

export type WorldAdamW = AdamW | ShardedAdamW;

export function makeOptimizer(
  parameters: Iterable<readonly [string, Tensor]>,
  options: AdamWOptions,
  /** `base`: the weights of the trained model, for `--shard full`. */
  { world, shard, base }: { world: World; shard: Shard; base: Iterable<readonly [string, Tensor]> },
): WorldAdamW {
  if (shard === 'none' || world.size === 1) return new AdamW(parameters, options);
  return new ShardedAdamW(parameters, options, world, shard === 'full' ? new Map(base) : null);
}
