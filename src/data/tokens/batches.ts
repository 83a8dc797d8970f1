/**
 * Batches over tokenised data: by count or by tokens, in an order given by seed and epoch, from any position.
 *
 *     const batches = new Batches(tokens, { batchSize: 32, epochs: 3, seed: 42 });
 *     batches.seek(checkpoint.data);                 // { epoch, index }
 *     for await (const batch of batches) { …; checkpoint.data = batches.state; }
 *
 * The next batches are read while a step runs, so that a step never waits for data.
 */
import { UserError } from '../../errors.ts';
import { Random } from '../../random.ts';
import { type Batch, packBatch } from './batch.ts';
import type { TokenStore } from './store.ts';

/** Batch size, order, epochs and this process's share. */
export interface BatchOptions {
  /** Examples per batch, at most. */
  batchSize?: number;
  /** Tokens per batch, at most (one longer example makes a batch of its own). With both, whichever is met first. */
  tokenBudget?: number;
  /** `replacement` draws each example independently, for evaluation on a sample. */
  order?: 'shuffled' | 'sequential' | 'replacement';
  /** Groups examples of similar length; batches still come in random order. */
  lengthAware?: boolean;
  seed?: number;
  /** Default 1. Infinity goes on for ever. */
  epochs?: number;
  /** Leave out a last batch that is smaller than the others. */
  dropLast?: boolean;
  /** This process's share: batches rank, rank + world, … Every rank gets the same number. */
  rank?: number;
  world?: number;
  /** Batches read ahead. */
  prefetch?: number;
}

/** A position in the data: the epoch, and the number of the next batch in it. */
export interface BatchState {
  epoch: number;
  index: number;
}

/** Examples are sorted by length within windows of this many batches, so that an epoch is not one long sorted run. */
const windowBatches = 64;

type Store = Pick<TokenStore, 'length' | 'lengths' | 'records'>;

/** Packed batches over a token store, which can be resumed from any position. */
export class Batches implements AsyncIterable<Batch> {
  readonly #store: Store;
  readonly #options: BatchOptions;
  #state: BatchState = { epoch: 0, index: 0 };
  #plan: { epoch: number; batches: Uint32Array[] } | undefined;

  constructor(store: Store, options: BatchOptions) {
    const { batchSize = 1, tokenBudget = 1, rank = 0, world = 1 } = options;
    if (options.batchSize === undefined && options.tokenBudget === undefined) {
      throw new UserError('A batch needs a size: batchSize (examples) or tokenBudget (tokens).');
    }
    for (const [name, value] of Object.entries({ batchSize, tokenBudget, world })) {
      if (!Number.isInteger(value) || value < 1)
        throw new UserError(`${name} must be a whole number of at least 1, this is ${value}.`);
    }
    if (rank < 0 || rank >= world) throw new UserError(`rank must lie in 0…${world - 1}, this is ${rank}.`);
    this.#store = store;
    this.#options = options;
  }

  /** The position after the last batch that was handed out. */
  get state(): BatchState {
    return { ...this.#state };
  }

  seek(state: BatchState): void {
    this.#state = { epoch: state.epoch, index: state.index };
  }

  /** How many batches an epoch has; with a token budget it differs a little from epoch to epoch. */
  count(epoch = 0): number {
    return this.#batchesOf(epoch).length;
  }

  /** Batches of all epochs together. */
  total(): number {
    const { epochs = 1, tokenBudget } = this.#options;
    if (tokenBudget === undefined || !Number.isFinite(epochs)) return this.count() * epochs;
    let sum = 0;
    for (let epoch = 0; epoch < epochs; epoch++) sum += this.count(epoch);
    return sum;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Batch> {
    const { prefetch = 2 } = this.#options;
    const coming: { batch: Promise<Batch>; after: BatchState }[] = [];
    let cursor: BatchState | undefined = this.#settle(this.#state);
    while (true) {
      while (cursor !== undefined && coming.length <= prefetch) {
        const { epoch, index }: BatchState = cursor;
        const batch = this.#load(this.#batchesOf(epoch)[index] as Uint32Array);
        batch.catch(() => {});
        cursor = this.#settle({ epoch, index: index + 1 });
        coming.push({ batch, after: cursor ?? { epoch: epoch + 1, index: 0 } });
      }
      const next = coming.shift();
      if (next === undefined) return;
      const batch = await next.batch;
      this.#state = next.after;
      yield batch;
    }
  }

  /** The end of an epoch becomes the start of the next; undefined after the last. */
  #settle({ epoch, index }: BatchState): BatchState | undefined {
    const { epochs = 1 } = this.#options;
    if (epoch >= epochs) return undefined;
    const count = this.count(epoch);
    if (count === 0) throw new UserError('There are fewer examples than one batch needs. Take smaller batches.');
    if (index < count) return { epoch, index };
    return this.#settle({ epoch: epoch + 1, index: index - count });
  }

  async #load(indices: Uint32Array): Promise<Batch> {
    return packBatch(await this.#store.records(indices));
  }

  #batchesOf(epoch: number): Uint32Array[] {
    if (this.#plan?.epoch !== epoch) this.#plan = { epoch, batches: this.#share(this.#cutEpoch(epoch)) };
    return this.#plan.batches;
  }

  #share(batches: Uint32Array[]): Uint32Array[] {
    const { rank = 0, world = 1 } = this.#options;
    if (world === 1) return batches;
    const each = Math.floor(batches.length / world);
    return batches.filter((_, index) => index % world === rank).slice(0, each);
  }

  #cutEpoch(epoch: number): Uint32Array[] {
    const { order = 'shuffled', seed = 42, lengthAware = false, dropLast = false } = this.#options;
    const { length } = this.#store;
    const random = new Random(seed, epoch);
    let indices: Uint32Array;
    if (order === 'shuffled') indices = random.permutation(length);
    else indices = Uint32Array.from({ length }, (_, i) => (order === 'replacement' ? random.int(0, length - 1) : i));
    if (!lengthAware) return this.#cut(indices, dropLast);
    const window = windowBatches * this.#examplesPerBatch();
    for (let start = 0; start < length; start += window) {
      indices.subarray(start, start + window).sort((a, b) => this.#lengthOf(a) - this.#lengthOf(b) || a - b);
    }
    return random.shuffle(this.#cut(indices, dropLast));
  }

  #cut(indices: Uint32Array, dropLast: boolean): Uint32Array[] {
    const { batchSize = Number.POSITIVE_INFINITY, tokenBudget = Number.POSITIVE_INFINITY } = this.#options;
    const batches: Uint32Array[] = [];
    let start = 0;
    let tokens = 0;
    for (let i = 0; i < indices.length; i++) {
      const length = this.#lengthOf(indices[i] as number);
      if (i > start && (i - start >= batchSize || tokens + length > tokenBudget)) {
        batches.push(indices.subarray(start, i));
        start = i;
        tokens = 0;
      }
      tokens += length;
    }
    const full = indices.length - start >= batchSize;
    if (start < indices.length && (full || !dropLast)) batches.push(indices.subarray(start));
    return batches;
  }

  #lengthOf(index: number): number {
    return this.#store.lengths[index] as number;
  }

  #examplesPerBatch(): number {
    const { batchSize = Number.POSITIVE_INFINITY, tokenBudget = Number.POSITIVE_INFINITY } = this.#options;
    const { length, lengths } = this.#store;
    const mean = lengths.reduce((sum, tokens) => sum + tokens, 0) / Math.max(length, 1);
    return Math.max(1, Math.min(batchSize, Math.floor(tokenBudget / mean)));
  }
}
