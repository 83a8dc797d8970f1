/**
 * The micro-batches of each optimiser step over tokenised data, from any position.
 *
 *     const steps = new StepBatches(tokens, { batchSize: 32, gradAccum: 4, epochs: 1, seed: 42 });
 *     const batches = await steps.next();                     // those of step 1
 *     state = steps.state;                                    // small plain data, for a checkpoint
 */

import type { Batch } from '../../data/index.ts';
import { Batches, type BatchOptions, type BatchState, type TokenStore } from '../../data/index.ts';
import { AttuneError, UserError } from '../../errors.ts';
import { packedBatch } from '../../models/decoder/batch.ts';
import type { PackedBatch } from '../../models/index.ts';
import type { Device } from '../../tensor/index.ts';
import type { StepLimit } from '../loop/task.ts';

export interface StepBatchOptions extends Pick<BatchOptions, 'tokenBudget' | 'lengthAware'> {
  batchSize: number;
  gradAccum: number;
  /** May be a fraction. */
  epochs: number;
  seed: number;
  /** Ends the training early if it is reached before the epochs end. */
  maxSteps?: number;
}

/** A position in the data, and the number of steps taken to reach it. */
export interface StepState extends BatchState {
  steps: number;
}

export class StepBatches {
  readonly #batches: Batches;
  readonly #options: StepBatchOptions;
  readonly #size: number;
  #steps = 0;
  /** Micro-batches from the position to the end of the last epoch. */
  #left: number;
  #reader: AsyncIterator<Batch> | undefined;
  /** The position after the last step that `next` returned. With a peeked step `#batches` is one step ahead. */
  #position: BatchState;
  #peeked: { batches: Batch[]; end: BatchState } | undefined;

  constructor(store: TokenStore, options: StepBatchOptions) {
    const { batchSize, tokenBudget, epochs, seed, lengthAware } = options;
    const size = tokenBudget === undefined ? { batchSize } : { tokenBudget };
    this.#batches = new Batches(store, { ...size, seed, lengthAware, epochs: Number.POSITIVE_INFINITY });
    this.#options = options;
    this.#size = store.length;
    this.#position = this.#batches.state;
    this.#left = microBatchesFrom(this.#batches, { epoch: 0, examples: 0 }, epochs);
    if (this.totalSteps === 0) throw new UserError('There is not a single step in this many epochs of so little data.');
  }

  /** The steps taken, plus those that the rest of the data gives at this batch size. */
  get totalSteps(): number {
    return Math.min(this.#inEpochs, this.#options.maxSteps ?? Number.POSITIVE_INFINITY);
  }

  get limits(): StepLimit[] {
    const ends = { maxSteps: this.#options.maxSteps, epochs: this.#inEpochs };
    return (['maxSteps', 'epochs'] as const).filter((limit) => ends[limit] === this.totalSteps);
  }

  /** The number of micro-batches in the next step: --grad-accum, or fewer at the end of the last epoch. */
  get microBatches(): number {
    return Math.min(this.#options.gradAccum, this.#left);
  }

  get #inEpochs(): number {
    return this.#steps + Math.ceil(this.#left / this.#options.gradAccum);
  }

  /** The position after the last step that `next` returned. */
  get state(): StepState {
    return { ...this.#position, steps: this.#steps };
  }

  restore(state: StepState): void {
    if (state.examples === undefined)
      throw new UserError(
        'This checkpoint is of an earlier version, which counted its position in batches: start anew.',
      );
    this.#reader = undefined;
    this.#peeked = undefined;
    this.#batches.seek(state);
    this.#position = this.#batches.state;
    this.#steps = state.steps;
    this.#left = microBatchesFrom(this.#batches, state, this.#options.epochs);
  }

  /** Passes over the data so far, with fractions. */
  get epoch(): number {
    const { epoch, examples } = this.#position;
    return epoch + examples / this.#size;
  }

  /** The micro-batches of the next step. The last step may have fewer. */
  async next(): Promise<Batch[]> {
    const { batches, end } = await this.#read();
    this.#position = end;
    this.#peeked = undefined;
    this.#left -= batches.length;
    this.#steps++;
    return batches;
  }

  /** What `next` will return, without changing the state. */
  async peek(): Promise<Batch[]> {
    return (await this.#read()).batches;
  }

  async #read(): Promise<{ batches: Batch[]; end: BatchState }> {
    if (this.#peeked !== undefined) return this.#peeked;
    this.#reader ??= this.#batches[Symbol.asyncIterator]();
    const count = this.microBatches;
    const batches: Batch[] = [];
    while (batches.length < count) {
      const next = await this.#reader.next();
      if (next.done) throw new AttuneError(`The data ended within step ${this.#steps + 1}.`);
      batches.push(next.value);
    }
    this.#peeked = { batches, end: this.#batches.state };
    return this.#peeked;
  }
}

/** The number of micro-batches from a position to the end of the epochs. The last epoch may be partial. */
function microBatchesFrom(batches: Batches, { epoch, examples }: BatchState, epochs: number): number {
  const whole = Math.floor(epochs);
  const inLast = Math.round((epochs - whole) * batches.count(whole));
  if (epoch > whole) return 0;
  if (epoch === whole) {
    const end = batches.positionAfter(whole, inLast);
    const after = batches.count(whole, end);
    return Math.max(0, batches.count(whole, examples) - after);
  }
  return inLast + batches.count(epoch, examples) + batches.countEpochs(epoch + 1, whole);
}

/** A batch as tensors on the device. */
export function onDevice(batch: Batch, device: Device): PackedBatch {
  return packedBatch(batch.ids, Array.from(batch.cuSeqlens), device);
}
