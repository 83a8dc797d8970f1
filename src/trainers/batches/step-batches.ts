/**
 * The micro-batches of each optimiser step over tokenised data, from any position.
 *
 *     const steps = new StepBatches(tokens, { batchSize: 32, gradAccum: 4, epochs: 1, seed: 42 });
 *     const batches = await steps.next(1);                    // those of step 1
 *     state = steps.state;                                    // small and plain, for a checkpoint
 */

import type { Batch } from '../../data/index.ts';
import { Batches, type BatchOptions, type BatchState, type TokenStore } from '../../data/index.ts';
import { AttuneError, UserError } from '../../errors.ts';
import { type PackedBatch, packedBatch } from '../../models/index.ts';
import type { Device } from '../../tensor/index.ts';

export interface StepBatchOptions extends Pick<BatchOptions, 'tokenBudget' | 'lengthAware'> {
  batchSize: number;
  gradAccum: number;
  /** May be a fraction. */
  epochs: number;
  seed: number;
  /** Ends the training before its epochs if reached first. */
  maxSteps?: number;
}

export class StepBatches {
  readonly totalSteps: number;
  readonly #batches: Batches;
  readonly #gradAccum: number;
  readonly #microBatches: number;
  #reader: AsyncIterator<Batch> | undefined;

  constructor(store: TokenStore, options: StepBatchOptions) {
    const { batchSize, tokenBudget, gradAccum, epochs, seed, lengthAware } = options;
    const size = tokenBudget === undefined ? { batchSize } : { tokenBudget };
    this.#batches = new Batches(store, { ...size, seed, lengthAware, epochs: Number.POSITIVE_INFINITY });
    this.#gradAccum = gradAccum;
    this.#microBatches = microBatchCount(this.#batches, epochs);
    const steps = Math.ceil(this.#microBatches / gradAccum);
    this.totalSteps = Math.min(steps, options.maxSteps ?? steps);
    if (this.totalSteps === 0) throw new UserError('There is not a single step in this many epochs of so little data.');
  }

  /** The position after the last step returned. */
  get state(): BatchState {
    return this.#batches.state;
  }

  restore(state: BatchState): void {
    this.#reader = undefined;
    this.#batches.seek(state);
  }

  /** Passes over the data so far. */
  get epoch(): number {
    const { epoch, index } = this.#batches.state;
    return epoch + index / this.#batches.count(epoch);
  }

  /** Steps are asked for in order, counted from 1; the last one may have fewer micro-batches. */
  async next(step: number): Promise<Batch[]> {
    this.#reader ??= this.#batches[Symbol.asyncIterator]();
    const count = Math.min(this.#gradAccum, this.#microBatches - (step - 1) * this.#gradAccum);
    const batches: Batch[] = [];
    while (batches.length < count) {
      const next = await this.#reader.next();
      if (next.done) throw new AttuneError(`The data ended within step ${step}.`);
      batches.push(next.value);
    }
    return batches;
  }
}

function microBatchCount(batches: Batches, epochs: number): number {
  const whole = Math.floor(epochs);
  let count = 0;
  for (let epoch = 0; epoch < whole; epoch++) count += batches.count(epoch);
  return count + Math.round((epochs - whole) * batches.count(whole));
}

/** A batch as tensors on the device. */
export function onDevice(batch: Batch, device: Device): PackedBatch {
  return packedBatch(BigInt64Array.from(batch.ids, BigInt), Array.from(batch.cuSeqlens), device);
}
