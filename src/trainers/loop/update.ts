/**
 * The gradients of one optimiser update. Micro-batches are dealt over the ranks, and gradients and metrics are summed
 * over all ranks. Every rank knows all micro-batches of the step, so denominators cover the whole step.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isMaximum, MetricSums } from '../../algorithms/metrics.ts';
import { type Bucket, bucketsOf } from '../../dist/buckets.ts';
import { dealByCost, roundsBySize, roundsInOrder } from '../../dist/deal.ts';
import { Exchange, OverlappedPass } from '../../dist/exchange.ts';
import { clipTo, squaresOf } from '../../dist/norm.ts';
import { ShardedAdamW } from '../../dist/shard/sharded-adamw.ts';
import { ShardedPass } from '../../dist/shard/sharded-pass.ts';
import { traced } from '../../dist/trace.ts';
import type { World } from '../../dist/world.ts';
import type { Decoder } from '../../models/index.ts';
import { clipGradNorm, gradSquares } from '../../nn/index.ts';
import { Random } from '../../random.ts';
import {
  aten,
  type Device,
  noGrad,
  Stream,
  scope,
  seed as seedEngine,
  type Tensor,
  tensor,
} from '../../tensor/index.ts';
import type { BatchMetrics, Optimizer, UpdateHints } from './task.ts';

type Metrics = Record<string, number>;

/** The result of an update. If loss or norm is not finite, the parameters are unchanged. */
export interface Updated {
  metrics: Metrics;
  /** Norm of the gradient before clipping. */
  norm: number;
  finite: boolean;
}

export interface UpdateOptions {
  optimizer: Optimizer;
  /** The decoder whose backward gives the gradients. It reports when a block's gradients are complete. */
  decoder?: Decoder;
  world: World;
  /** Sums gradients from the first micro-batch to the last, whatever the number of ranks. */
  exact: boolean;
  /** Seeds the dropout of each micro-batch. undefined leaves the generators alone. */
  seed?: number;
  /**
   * Whether the update and work of the next step start before this update's numbers are read. Default: the optimiser's
   * `scalesOnDevice`.
   */
  worksAhead?: boolean;
}

export interface UpdateWork<Batch> extends UpdateHints<Batch> {
  batches: readonly Batch[];
  backward: (batch: Batch) => BatchMetrics;
  cost: (batch: Batch) => number;
  /** The step, and the update within it. */
  key: readonly number[];
  /** Throws if the step is to be cancelled. */
  check: () => void;
}

export class GradientSums {
  readonly #options: UpdateOptions;
  #buckets: Bucket[] | undefined;
  /**
   * The stream on which metrics are read. Reads wait only for what precedes the update, not for the work queued after
   * it.
   */
  #stream: Stream | undefined;

  constructor(options: UpdateOptions) {
    this.#options = options;
  }

  /** One update of the parameters. The gradient is scaled down to at most `maxNorm` (0 = never). */
  async update<Batch>(work: UpdateWork<Batch>, maxNorm: number): Promise<Updated> {
    const { optimizer, exact, worksAhead = optimizer.scalesOnDevice } = this.#options;
    optimizer.zeroGrad();
    if (this.#isAlone && !exact && worksAhead) {
      const sums = await this.#alone(work);
      this.#seedNext(work);
      // The host prepares the next step while the device still computes the gradient.
      const startNext = await work.ahead?.().catch(() => undefined);
      const updated = this.#updateAhead(sums, maxNorm, startNext);
      if (updated !== null) return updated;
      return this.#updateWith(sums.read(), maxNorm);
    }
    return this.#updateWith(await this.run(work), maxNorm);
  }

  async #updateWith(metrics: Metrics, maxNorm: number): Promise<Updated> {
    const norm = await this.#clip(maxNorm);
    const finite = Number.isFinite(norm) && Number.isFinite(metrics.loss ?? Number.NaN);
    if (finite) await traced('optimizer', () => this.#options.optimizer.step());
    return { metrics, norm, finite };
  }

  /**
   * Queues the update before the host has read the loss and the norm; the device itself checks that they are finite.
   * Otherwise the device would idle twice a step while the host prepares the next launch over all parameters. Returns
   * null if the gradients are on several devices.
   */
  #updateAhead(sums: MetricSums, maxNorm: number, startNext: (() => void) | undefined): Updated | null {
    const { optimizer } = this.#options;
    return scope(() => {
      const squares = gradSquares(optimizer.parameters);
      const loss = sums.get('loss');
      if (squares === null || loss === undefined) return null;
      const { device } = squares;
      const lossThere: Tensor =
        typeof loss === 'number' ? tensor(loss, { dtype: 'float64', device }) : loss.to({ device });
      const factor = aten<Tensor>('attune::clip_factor', squares, lossThere, maxNorm);
      const update = () => {
        optimizer.step(factor);
        optimizer.zeroGrad();
        withoutThrowing(startNext);
      };
      // Starts the reductions now and leaves only copies for later, because kernels would wait behind the update's.
      const metricsThere = sums.startReading();
      const read = () => ({ metrics: metricsThere(), norm: Math.sqrt(squares.item()) });
      const { metrics, norm } = this.#besides(device, update, read);
      const finite = Number.isFinite(norm) && Number.isFinite(metrics.loss ?? Number.NaN);
      if (!finite) optimizer.takeBackStep?.();
      return { metrics, norm, finite };
    });
  }

  /** Queues `update`, and meanwhile reads values computed before it. */
  #besides<T>(device: Device, update: () => void, read: () => T): T {
    if (device.startsWith('cuda')) {
      this.#stream ??= new Stream(device);
      this.#stream.follow();
      update();
      return this.#stream.read(read);
    }
    update();
    return read();
  }

  /** Leaves the update's summed gradients in every rank's parameters, and returns the update's metrics. */
  async run<Batch>(work: UpdateWork<Batch>): Promise<Metrics> {
    const { exact } = this.#options;
    const dealt = this.#weights !== null;
    const metrics =
      exact || dealt
        ? await this.#inRounds(work)
        : this.#isAlone
          ? (await this.#alone(work)).read()
          : await this.#together(work);
    this.#seedNext(work);
    return metrics;
  }

  /** Seeds by the number of micro-batches, so that a checkpoint's generators do not depend on the rank. */
  #seedNext<Batch>({ key, batches }: UpdateWork<Batch>): void {
    this.#seed(key, batches.length);
  }

  /** Does not read the metrics, because the device may still be computing them. */
  async #alone<Batch>({ batches, backward, key, check }: UpdateWork<Batch>): Promise<MetricSums> {
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
    return sums;
  }

  /** Each rank sums its micro-batches. The backward of the last one starts the exchange block by block. */
  async #together<Batch>(work: UpdateWork<Batch>): Promise<Metrics> {
    const { world, optimizer } = this.#options;
    const { batches, cost, key } = work;
    const places = dealByCost(batches.map(cost), world.size)[world.rank] as number[];
    const sums = new MetricSums();
    const exchange = new Exchange(this.#flat(), world, optimizer instanceof ShardedAdamW ? 'part' : 'whole');
    const pass = new OverlappedPass(exchange, world.size);
    try {
      for (const [i, place] of places.entries()) {
        this.#seed(key, place);
        const compute = () =>
          traced('micro-batch', () => scope(() => sums.add(work.backward(batches[place] as Batch))));
        if (i < places.length - 1) compute();
        else this.#watched(pass, compute);
        await nextTurn();
      }
      pass.finish();
      const all = await world.gather({ metrics: sums.read(), present: [...exchange.present] });
      await exchange.settle();
      await this.#finish(exchange, new Set(all.flatMap((each) => each.present)));
      return combined(all.map(({ metrics }) => metrics));
    } finally {
      exchange.dispose();
    }
  }

  /**
   * Processes one micro-batch per rank at a time. --exact needs it to add gradients in the order of the micro-batches.
   * Sharded weights need it because every rank takes part in gathering every block.
   */
  async #inRounds<Batch>(work: UpdateWork<Batch>): Promise<Metrics> {
    const { world, optimizer, exact } = this.#options;
    const { batches, backward, key, check } = work;
    const weights = this.#weights;
    const rounds = exact ? roundsInOrder(batches.length, world.size) : roundsBySize(batches.map(work.cost), world.size);
    const rows: { place: number; metrics: Metrics }[] = [];
    const exchange = new Exchange(this.#flat(), world, exact ? 'ordered' : 'part');
    await weights?.beginUpdate();
    try {
      for (const round of rounds) {
        check();
        const place = round[world.rank];
        const ranks = round.length;
        const pass =
          weights === null
            ? new OverlappedPass(exchange, ranks)
            : new ShardedPass(weights, exchange, { ranks, lowest: this.#lowestTrained() });
        if (place !== undefined) {
          this.#seed(key, place);
          const metrics = new MetricSums();
          const compute = () => scope(() => metrics.add(backward(batches[place] as Batch)));
          this.#watched(pass, () => traced('micro-batch', compute));
          rows.push({ place, metrics: metrics.read() });
        }
        pass.finish();
        await exchange.settle();
        optimizer.zeroGrad();
        await nextTurn();
      }
      weights?.endUpdate();
      const all = await world.gather({ rows, present: [...exchange.present] });
      await this.#finish(exchange, new Set(all.flatMap((each) => each.present)));
      const ordered = all.flatMap((each) => each.rows).sort((a, b) => a.place - b.place);
      return combined(ordered.map(({ metrics }) => metrics));
    } finally {
      exchange.dispose();
    }
  }

  /** Runs a backward pass that reports its blocks to the exchange, if there are other ranks. */
  #watched(pass: OverlappedPass | ShardedPass, compute: () => void): void {
    const { decoder } = this.#options;
    if (decoder === undefined || this.#isAlone) {
      compute();
      return;
    }
    decoder.watcher = pass;
    try {
      compute();
    } finally {
      decoder.watcher = null;
    }
  }

  /**
   * Puts the summed gradients where the optimiser reads them: only its part for a sharded optimiser, otherwise the
   * whole.
   */
  async #finish(exchange: Exchange, present: ReadonlySet<string>): Promise<void> {
    const { optimizer } = this.#options;
    if (optimizer instanceof ShardedAdamW) optimizer.takeGradients(exchange.takeParts(), present);
    else await exchange.giveBack(present);
  }

  /** Whether nothing is exchanged. A sharded optimiser exchanges even in a world of one (tests/cuda/dist.test.ts). */
  get #isAlone(): boolean {
    const { world, optimizer } = this.#options;
    return world.size === 1 && !(optimizer instanceof ShardedAdamW);
  }

  get #weights() {
    const { optimizer } = this.#options;
    return optimizer instanceof ShardedAdamW ? optimizer.weights : null;
  }

  /** The block at which backward ends: 0, or with adapters the first block that has one. */
  #lowestTrained(): number {
    const layers = this.#options.decoder?.layers ?? [];
    if (this.#options.decoder?.weights.embedding.weight.requiresGrad) return 0;
    const first = layers.findIndex((layer) => layer.isTrained());
    return first < 0 ? layers.length : first;
  }

  #flat(): Bucket[] {
    const { optimizer, world } = this.#options;
    this.#buckets ??= optimizer instanceof ShardedAdamW ? optimizer.buckets : bucketsOf(optimizer.named, world.size);
    return this.#buckets;
  }

  /** Scales the gradient down to at most `maxNorm` (0 = never). Returns the norm before scaling. */
  async #clip(maxNorm: number): Promise<number> {
    const { optimizer, exact } = this.#options;
    if (optimizer instanceof ShardedAdamW) return optimizer.clip(maxNorm);
    const { parameters } = optimizer;
    if (exact) return clipTo(parameters, Math.sqrt(noGrad(() => squaresOf(parameters))), maxNorm);
    return clipGradNorm(parameters, maxNorm);
  }

  /** Dropout depends on the step and the micro-batch, not on the rank. */
  #seed(key: readonly number[], place: number): void {
    const { seed } = this.#options;
    if (seed !== undefined) seedEngine(new Random('micro-batch', seed, ...key, place).uint32());
  }
}

/**
 * The update is already queued, so nothing may throw here. The next step does the same work itself and meets the error
 * then.
 */
function withoutThrowing(start: (() => void) | undefined): void {
  try {
    start?.();
  } catch {}
}

/** Sums shares of means and counts, and takes the largest of maxima. */
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
