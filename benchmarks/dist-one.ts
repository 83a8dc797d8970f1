/**
 * `npm run bench -- dist-one [--updates 60] [--tokens 64]`: what a world of one costs. The gradients of an update of four
 * micro-batches on the 15M shape, once as every trainer makes them (through src/dist: dealing, seeding, summing) and once by a bare
 * loop, in turn; in seconds of the processor, so that other work on the machine shows little. `added_percent` is the same difference
 * with micro-batches that compute nothing, as a share of an update that does: a host whose speed changes by the second hides less of it.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { MetricSums } from '../src/algorithms/metrics.ts';
import { soloWorld } from '../src/dist/world.ts';
import { initModel, packSequences } from '../src/models/index.ts';
import { AdamW } from '../src/nn/index.ts';
import { scope, setThreads } from '../src/tensor/index.ts';
import type { BatchMetrics } from '../src/trainers/loop/task.ts';
import { GradientSums } from '../src/trainers/loop/update.ts';

import type { Reading } from './run.ts';
import { LLAMA_15M } from './support/shapes.ts';

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: { updates: { type: 'string', default: '60' }, tokens: { type: 'string', default: '64' } },
  });
  setThreads(1);
  using model = initModel(LLAMA_15M, { seed: 0 });
  model.decoder.requiresGrad_();
  const optimizer = new AdamW(model.trainable(), { lr: 0 });
  const ids = Array.from({ length: Number(values.tokens) }, (_, i) => 1 + ((i * 7919) % 30_000));
  const batches = [0, 1, 2, 3].map(() => packSequences([ids], 'cpu'));
  const backward = (batch: (typeof batches)[number]) => ({
    loss: model.decoder.backward(batch, (hidden) => hidden.square().mean()),
  });
  const gradients = new GradientSums({
    optimizer,
    decoder: model.decoder,
    world: soloWorld,
    exact: false,
    seed: 1,
  });
  type Backward = (batch: (typeof batches)[number]) => BatchMetrics;
  const through = (of: Backward = backward) =>
    gradients.run({ batches, backward: of, cost: () => 1, key: [1, 0], check: () => {} });
  const bare = async (of: Backward = backward) => {
    const sums = new MetricSums();
    for (const batch of batches) {
      scope(() => sums.add(of(batch)));
      await nextTurn();
    }
    return sums.read();
  };
  const nothing: Backward = () => ({ loss: 0 });
  const seconds = async (update: () => Promise<unknown>) => {
    optimizer.zeroGrad();
    const before = process.cpuUsage();
    await update();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1e6;
  };
  const readings: { with: number; without: number }[] = [];
  for (let i = -3; i < Number(values.updates); i++) {
    // The one that comes second finds warm caches: they take turns at that, too.
    const first = await seconds(i % 2 === 0 ? through : bare);
    const second = await seconds(i % 2 === 0 ? bare : through);
    if (i >= 0) readings.push(i % 2 === 0 ? { with: first, without: second } : { with: second, without: first });
  }
  const times = 2000;
  const many = async (update: (of: Backward) => Promise<unknown>) => {
    for (let i = 0; i < times; i++) await update(nothing);
  };
  const rounds: number[] = [];
  for (let i = 0; i < 8; i++) rounds.push((await seconds(() => many(through))) - (await seconds(() => many(bare))));
  const without = median(readings.map((each) => each.without));
  const shares = readings.map((each) => each.with / each.without - 1);
  yield {
    name: `${readings.length} updates of 4 × ${ids.length} tokens`,
    without_ms: 1000 * without,
    with_ms: 1000 * median(readings.map((each) => each.with)),
    added_us: (1e6 * median(rounds)) / times,
    added_percent: (100 * median(rounds)) / times / without,
    cost_percent: 100 * median(shares),
    lower_quartile: 100 * quantile(shares, 0.25),
    upper_quartile: 100 * quantile(shares, 0.75),
  };
}

const quantile = (values: readonly number[], share: number) =>
  values.toSorted((a, b) => a - b)[Math.floor(share * values.length)] as number;
const median = (values: readonly number[]) => quantile(values, 0.5);
