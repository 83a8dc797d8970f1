/**
 * One optimiser update's gradients: the micro-batches are dealt over the ranks, and gradients and metrics are summed over
 * all of them. Every rank knows all micro-batches of the step, so that the denominators are the whole step's.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isMaximum, MetricSums } from '../../algorithms/metrics.ts';
import { type Bucket, bucketsOf } from '../../dist/buckets.ts';
import { dealByCost, dealInRounds } from '../../dist/deal.ts';
import { gradientNames, OrderedSum, sumGradients } from '../../dist/gradients.ts';
import { clipTo, squaresOf } from '../../dist/norm.ts';
import { ShardedAdamW } from '../../dist/sharded-adamw.ts';
import type { World } from '../../dist/world.ts';
import { clipGradNorm } from '../../nn/index.ts';
import { Random } from '../../random.ts';
import { noGrad, scope, seed as seedEngine } from '../../tensor/index.ts';
import type { BatchMetrics, Optimizer } from './task.ts';

type Metrics = Record<string, number>;

export interface UpdateOptions {
  optimizer: Optimizer;
  world: World;
  /** Sums gradients from the first micro-batch to the last, whatever the number of ranks. */
  exact: boolean;
  /** Decides the dropout of each micro-batch; undefined leaves the generators as they are. */
  seed?: number;
}

export interface UpdateWork<Batch> {
  batches: readonly Batch[];
  backward: (batch: Batch) => BatchMetrics;
  /** How much work a micro-batch is, for dealing. */
  cost: (batch: Batch) => number;
  /** The step and the update in it. */
  key: readonly number[];
  /** Throws where the step is to be broken off. */
  check: () => void;
}

export class GradientSums {
  readonly #options: UpdateOptions;
  #buckets: Bucket[] | undefined;

  constructor(options: UpdateOptions) {
    this.#options = options;
  }

  /** Leaves the update's gradients in the parameters of every rank; returns the update's metrics. */
  async run<Batch>(work: UpdateWork<Batch>): Promise<Metrics> {
    const { world, exact } = this.#options;
    const metrics = exact
      ? await this.#inOrder(work)
      : world.size === 1
        ? await this.#alone(work)
        : await this.#together(work);
    // A checkpoint must not tell which micro-batches its rank had.
    this.#seed(work.key, work.batches.length);
    return metrics;
  }

  async #alone<Batch>({ batches, backward, key, check }: UpdateWork<Batch>): Promise<Metrics> {
    const sums = new MetricSums();
    try {
      for (const [i, batch] of batches.entries()) {
        check();
        this.#seed(key, i);
        scope(() => sums.add(backward(batch)));
        await nextTurn();
      }
    } catch (error) {
      sums.dispose();
      throw error;
    }
    return sums.read();
  }

  async #together<Batch>(work: UpdateWork<Batch>): Promise<Metrics> {
    const { world, optimizer } = this.#options;
    const { batches, cost, key } = work;
    const places = dealByCost(batches.map(cost), world.size)[world.rank] as number[];
    const sums = new MetricSums();
    for (const place of places) {
      this.#seed(key, place);
      scope(() => sums.add(work.backward(batches[place] as Batch)));
      await nextTurn();
    }
    const own = { metrics: sums.read(), present: gradientNames(optimizer.named) };
    const all = await world.gather(own);
    const present = new Set(all.flatMap((each) => each.present));
    if (optimizer instanceof ShardedAdamW) await optimizer.reduceGradients(present);
    else await sumGradients(this.#flat(), world, present);
    return combined(all.map(({ metrics }) => metrics));
  }

  async #inOrder<Batch>(work: UpdateWork<Batch>): Promise<Metrics> {
    const { world, optimizer } = this.#options;
    const { batches, backward, key, check } = work;
    const places = dealInRounds(batches.length, world.size)[world.rank] as number[];
    const rows: { place: number; metrics: Metrics }[] = [];
    const present = new Set<string>();
    const sum = new OrderedSum(this.#flat(), world);
    try {
      for (let round = 0; round * world.size < batches.length; round++) {
        check();
        const place = places[round];
        if (place !== undefined) {
          this.#seed(key, place);
          const metrics = new MetricSums();
          scope(() => metrics.add(backward(batches[place] as Batch)));
          rows.push({ place, metrics: metrics.read() });
          for (const name of gradientNames(optimizer.named)) present.add(name);
        }
        await sum.add(Math.min(world.size, batches.length - round * world.size));
        optimizer.zeroGrad();
        await nextTurn();
      }
      const all = await world.gather({ rows, present: [...present] });
      const everywhere = new Set(all.flatMap((each) => each.present));
      if (optimizer instanceof ShardedAdamW) optimizer.takeGradients(sum.takeParts(), everywhere);
      else await sum.finish(everywhere);
      const ordered = all.flatMap((each) => each.rows).sort((a, b) => a.place - b.place);
      return combined(ordered.map(({ metrics }) => metrics));
    } finally {
      sum.dispose();
    }
  }

  #flat(): Bucket[] {
    const { optimizer, world } = this.#options;
    this.#buckets ??= optimizer instanceof ShardedAdamW ? optimizer.buckets : bucketsOf(optimizer.named, world.size);
    return this.#buckets;
  }

  /** Scales the update's gradient to at most `maxNorm` (0 = never) and returns the norm that it had. */
  async clip(maxNorm: number): Promise<number> {
    const { optimizer, exact } = this.#options;
    if (optimizer instanceof ShardedAdamW) return optimizer.clip(maxNorm);
    const { parameters } = optimizer;
    if (!exact) return clipGradNorm(parameters, maxNorm);
    return clipTo(parameters, Math.sqrt(noGrad(() => squaresOf(parameters))), maxNorm);
  }

  /** Dropout depends on the step and the micro-batch, and not on the rank. */
  #seed(key: readonly number[], place: number): void {
    const { seed } = this.#options;
    if (seed !== undefined) seedEngine(new Random('micro-batch', seed, ...key, place).uint32());
  }
}

/** Shares of means and counts are added, maxima compared. */
export function combined(rows: readonly Metrics[]): Metrics {
  const out: Metrics = {};
  for (const row of rows) {
    for (const [name, value] of Object.entries(row)) {
      const before = out[name];
      if (before === undefined) out[name] = value;
      else out[name] = isMaximum(name) ? Math.max(before, value) : before + value;
    }
  }
  return out;
}
