/** The optimiser of a world: one that every rank has whole, or one that is dealt over the ranks. */
import { AdamW, type AdamWOptions } from '../nn/index.ts';
import type { Tensor } from '../tensor/index.ts';
import { ShardedAdamW } from './sharded-adamw.ts';
import type { World } from './world.ts';

/** What ranks hold a part of: nothing, or the optimiser's state and the gradients (ZeRO-2). */
export const shardKinds = ['none', 'optimizer'] as const;
export type Shard = (typeof shardKinds)[number];

export type WorldAdamW = AdamW | ShardedAdamW;

export function makeOptimizer(
  parameters: Iterable<readonly [string, Tensor]>,
  options: AdamWOptions,
  { world, shard }: { world: World; shard: Shard },
): WorldAdamW {
  return shard === 'none' || world.size === 1
    ? new AdamW(parameters, options)
    : new ShardedAdamW(parameters, options, world);
}
