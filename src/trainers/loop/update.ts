/**
 * One optimiser update's gradients: the micro-batches are dealt over the ranks, and gradients and metrics are summed over
 * all of them. Every rank knows all micro-batches of the step, so that the denominators are the whole step's.
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

/** What an update was measured as. Where loss or norm is not finite, the parameters are as they were. */
export interface Updated {
  metrics: Metrics;
  /** Of the gradient, before it was clipped. */
  norm: number;
  finite: boolean;
}

export interface UpdateOptions {
  optimizer: Optimizer;
  /** The decoder whose backward gives the gradients; it tells when those of a block are complete. */
  decoder?: Decoder;
  world: World;
  /** Sums gradients from the first micro-batch to the last, whatever the number of ranks. */
  exact: boolean;
  /** Decides the dropout of each micro-batch; undefined leaves the generators as they are. */
  seed?: number;
  /** Whether the update, and work of the next step, are started before this one's numbers are read: where the optimiser `scalesOnDevice` unless given. */
  worksAhead?: boolean;
}

export interface UpdateWork<Batch> extends UpdateHints<Batch> {
  batches: readonly Batch[];
  backward: (batch: Batch) => BatchMetrics;
  cost: (batch: Batch) => number;
  /** The step and the update in it. */
  key: readonly number[];
  /** Throws where the step is to be broken off. */
  check: () => void;
}

export class GradientSums {
  readonly #options: UpdateOptions;
  #buckets: Bucket[] | undefined;
  /** Where metrics are read from. Nobody else's: what is started for the next step is read from another, which waits for that. */
  #stream: Stream | undefined;

  constructor(options: UpdateOptions) {
    this.#options = options;
  }

  /** One update of the parameters, with a gradient that is scaled to at most `maxNorm` (0 = never). */
  async update<Batch>(work: UpdateWork<Batch>, maxNorm: number): Promise<Updated> {
    const { optimizer, exact, worksAhead = optimizer.scalesOnDevice } = this.#options;
    optimizer.zeroGrad();
    if (this.#isAlone && !exact && worksAhead) {
      const sums = await this.#alone(work);
      this.#seedNext(work);
      // Prepared while the device still computes.
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
   * The update is started while the device still computes the gradient, and the device decides whether it is finite: metrics and norm
   * are read while it updates. The device would be idle twice in a step otherwise, for as long as the host takes to prepare the
   * next launch over all parameters. null where the gradients are not of one device.
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
      // Only copies are left for later: kernels would wait behind those of the update.
      const metricsThere = sums.startReading();
      const read = () => ({ metrics: metricsThere(), norm: Math.sqrt(squares.item()) });
      const { metrics, norm } = this.#besides(device, update, read);
      const finite = Number.isFinite(norm) && Number.isFinite(metrics.loss ?? Number.NaN);
      if (!finite) optimizer.takeBackStep?.();
      return { metrics, norm, finite };
    });
  }

  /** Starts `update`, and reads meanwhile what was computed before it. */
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

  /** Leaves the update's gradients in the parameters of every rank; returns the update's metrics. */
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

  /** A checkpoint must not tell which micro-batches its rank had. */
  #seedNext<Batch>({ key, batches }: UpdateWork<Batch>): void {
    this.#seed(key, batches.length);
  }

  /** The metrics are not read yet: the device may still be busy with them. */
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

  /** Each rank adds up its micro-batches; the last one's backward sends the sums on their way. */
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
   * One micro-batch for every rank at a time: with --exact, since gradients are then added in the order of micro-batches; with
   * sharded weights, since every rank takes part in gathering every block.
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

  /** Runs a backward pass with somebody told of its blocks, where there are other ranks to send something to. */
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

  /** Gives the summed gradients to whoever updates: parts to an optimiser that is dealt, the whole to one that is not. */
  async #finish(exchange: Exchange, present: ReadonlySet<string>): Promise<void> {
    const { optimizer } = this.#options;
    if (optimizer instanceof ShardedAdamW) optimizer.takeGradients(exchange.takeParts(), present);
    else await exchange.giveBack(present);
  }

  /** Whether nothing is exchanged. An optimiser that is dealt exchanges in a world of one, too (tests/cuda/dist.test.ts). */
  get #isAlone(): boolean {
    const { world, optimizer } = this.#options;
    return world.size === 1 && !(optimizer instanceof ShardedAdamW);
  }

  get #weights() {
    const { optimizer } = this.#options;
    return optimizer instanceof ShardedAdamW ? optimizer.weights : null;
  }

  /** The block at which backward ends: 0, or with adapters the first that has one. */
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

  /** Scales the update's gradient to at most `maxNorm` (0 = never); returns the norm that it had. */
  async #clip(maxNorm: number): Promise<number> {
    const { optimizer, exact } = this.#options;
    if (optimizer instanceof ShardedAdamW) return optimizer.clip(maxNorm);
    const { parameters } = optimizer;
    if (exact) return clipTo(parameters, Math.sqrt(noGrad(() => squaresOf(parameters))), maxNorm);
    return clipGradNorm(parameters, maxNorm);
  }

  /** Dropout depends on the step and the micro-batch, and not on the rank. */
  #seed(key: readonly number[], place: number): void {
    const { seed } = this.#options;
    if (seed !== undefined) seedEngine(new Random('micro-batch', seed, ...key, place).uint32());
  }
}

/** The update is under way, so nothing may be thrown: the next step meets the same error when it does this work itself. */
function withoutThrowing(start: (() => void) | undefined): void {
  try {
    start?.();
  } catch {}
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
