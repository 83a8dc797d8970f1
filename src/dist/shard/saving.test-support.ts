/** One rank of saving.test.ts: saves a sharded optimiser, and prints the most it held meanwhile. */

import { native } from '../../tensor/engine/native.ts';
import { keep, liveBytes, randn, scope, type Tensor } from '../../tensor/index.ts';
import { SafetensorsStream } from '../../tensor/safetensors/stream.ts';
import { joinWorld } from '../world.ts';
import { ShardedAdamW } from './sharded-adamw.ts';

const [path, dtype, mode] = process.argv.slice(2) as [string, 'float32' | 'bfloat16', 'optimizer' | 'full'];
const blocks = 12;
const world = await joinWorld();
const weight = (...shape: number[]) => scope(() => keep(randn(shape).to(dtype)));
const parameters: [string, Tensor][] = [
  ['embedding.weight', weight(64, 32)],
  ...Array.from({ length: blocks }, (_, i): [string, Tensor][] => [
    [`layers.${i}.up.weight`, weight(128, 64)],
    [`layers.${i}.norm.weight`, weight(65)],
  ]).flat(),
];
using optimizer = new ShardedAdamW(parameters, { lr: 0.1 }, world, mode === 'full' ? new Map(parameters) : null);

const before = liveBytes();
let most = before;
const look = () => {
  most = Math.max(most, liveBytes());
};
const run = native.groupRun;
native.groupRun = (...args) => {
  look();
  return run(...args);
};
const write = SafetensorsStream.prototype.write;
SafetensorsStream.prototype.write = function (...args) {
  look();
  return write.apply(this, args);
};
await optimizer.save(world.isFirst ? path : undefined);
const bucket = Math.max(...optimizer.buckets.map(({ length }) => 4 * length));
console.log(JSON.stringify({ held: most - before, left: liveBytes() - before, bucket, blocks }));
