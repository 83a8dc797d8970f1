/**
 * Batches over tokenised data: by count or by tokens, in an order given by seed and epoch, from any position.
 *
 *     const batches = new Batches(tokens, { batchSize: 32, epochs: 3, seed: 42 });
 *     batches.seek(checkpoint.data);                 // { epoch, examples }
 *     for await (const batch of batches) { …; checkpoint.data = batches.state; }
 *
 * A position is counted in examples, so a run may continue with batches of another size: the rest of the epoch is
 * divided anew from there. The next batches are read while a step runs, so that a step never waits for data.
 */
import { above, checkArguments, flag, integer, oneOf, type Rule, whole } from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import { Random } from '../../random.ts';
import { type Batch, packBatch } from './batch.ts';
import type { TokenStore } from './store.ts';

/** Batch size, order, epochs and this process's share. */
export interface BatchOptions {
  /** Examples per batch, at most. */
  batchSize?: number;
  /**
   * Most tokens per batch (one longer example makes a batch of its own). If both are given, the first limit reached
   * applies.
   */
  tokenBudget?: number;
  /** `replacement` draws each example independently, for evaluation on a sample. */
  order?: 'shuffled' | 'sequential' | 'replacement';
  /** Groups examples of similar length; batches still come in random order. */
  lengthAware?: boolean;
  seed?: number;
  /** Default 1. Infinity never ends. */
  epochs?: number;
  /** Drop a last batch that is smaller than the others. */
  dropLast?: boolean;
  /** This process's share: batches rank, rank + world, … Every rank gets the same number. */
  rank?: number;
  world?: number;
  /** Batches read ahead. */
  prefetch?: number;
}

/** A position in the data: the epoch, and how many of its examples were handed out. */
export interface BatchState {
  epoch: number;
  examples: number;
}

/** The rest of an epoch: this rank's batches, and the position at which each begins, followed by the end. */
interface EpochPlan {
  epoch: number;
  from: number;
  batches: Uint32Array[];
  starts: number[];
}

/** Examples are sorted by length within windows of this many batches, so that an epoch is not one long sorted run. */
const windowBatches = 64;

const optionRules: Record<keyof BatchOptions, Rule> = {
  batchSize: whole(1),
  tokenBudget: whole(1),
  order: oneOf(['shuffled', 'sequential', 'replacement']),
  lengthAware: flag,
  dropLast: flag,
  seed: integer,
  epochs: above(0),
  rank: whole(0),
  world: whole(1),
  prefetch: whole(0),
};

type Store = Pick<TokenStore, 'length' | 'lengths' | 'records'>;

/** Packed batches over a token store, which can be resumed from any position. */
export class Batches implements AsyncIterable<Batch> {
  readonly #store: Store;
  readonly #options: BatchOptions;
  #state: BatchState = { epoch: 0, examples: 0 };
  #plan: EpochPlan | undefined;

  constructor(store: Store, options: BatchOptions) {
    checkArguments('Batches', options, optionRules);
    checkNames('Batches', options, Object.keys(optionRules));
    const { rank = 0, world = 1 } = options;
    if (options.batchSize === undefined && options.tokenBudget === undefined) {
      throw new UserError('A batch needs a size: batchSize (examples) or tokenBudget (tokens).');
    }
    if (rank >= world) throw new UserError(`rank must lie in 0…${world - 1}, this is ${rank}.`);
    this.#store = store;
    this.#options = options;
  }

  /** The position after the last batch that was handed out. */
  get state(): BatchState {
    return { ...this.#state };
  }

  seek(state: BatchState): void {
    checkArguments('Batches.seek', state, { epoch: whole(0), examples: whole(0) }, ['epoch', 'examples']);
    this.#state = { epoch: state.epoch, examples: state.examples };
  }

  /**
   * How many batches an epoch has from a position on; with a token budget this differs a little from epoch to epoch.
   */
  count(epoch = 0, from = 0): number {
    return this.#planOf(epoch, from).batches.length;
  }

  /** The position after this many batches of a whole epoch. */
  positionAfter(epoch: number, batches: number): number {
    return this.#planOf(epoch, 0).starts[batches] as number;
  }

  /** Batches of the whole epochs from `from` to before `to`. Their numbers differ only with a token budget. */
  countEpochs(from: number, to: number): number {
    if (to <= from) return 0;
    if (this.#options.tokenBudget === undefined) return (to - from) * this.count(from);
    let sum = 0;
    for (let epoch = from; epoch < to; epoch++) sum += this.count(epoch);
    return sum;
  }

  /** Batches of all epochs together. */
  total(): number {
    const { epochs = 1 } = this.#options;
    return Number.isFinite(epochs) ? this.countEpochs(0, epochs) : epochs;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Batch> {
    const { prefetch = 2 } = this.#options;
    const coming: { batch: Promise<Batch>; after: BatchState }[] = [];
    let plan = this.#settle(this.#state);
    let index = 0;
    while (true) {
      while (plan !== undefined && coming.length <= prefetch) {
        const batch = this.#load(plan.batches[index] as Uint32Array);
        batch.catch(() => {});
        index++;
        const { epoch } = plan;
        let after: BatchState = { epoch, examples: plan.starts[index] as number };
        if (index === plan.batches.length) {
          after = { epoch: epoch + 1, examples: 0 };
          plan = this.#settle(after);
          index = 0;
        }
        coming.push({ batch, after });
      }
      const next = coming.shift();
      if (next === undefined) return;
      const batch = await next.batch;
      this.#state = next.after;
      yield batch;
    }
  }

  /** The plan from a position on, or the next epoch's if this one is used up; undefined after the last. */
  #settle({ epoch, examples }: BatchState): EpochPlan | undefined {
    const { epochs = 1 } = this.#options;
    if (epoch >= epochs) return undefined;
    const plan = this.#planOf(epoch, examples);
    if (plan.batches.length > 0) return plan;
    if (examples === 0) throw new UserError('There are fewer examples than one batch needs. Take smaller batches.');
    return this.#settle({ epoch: epoch + 1, examples: 0 });
  }

  async #load(indices: Uint32Array): Promise<Batch> {
    return packBatch(await this.#store.records(indices));
  }

  #planOf(epoch: number, from: number): EpochPlan {
    if (this.#plan?.epoch !== epoch || this.#plan.from !== from)
      this.#plan = this.#share(epoch, from, this.#cutEpoch(epoch, from));
    return this.#plan;
  }

  #share(epoch: number, from: number, all: Uint32Array[]): EpochPlan {
    const { rank = 0, world = 1 } = this.#options;
    const each = Math.floor(all.length / world);
    const starts = [from];
    for (let i = 0; i < each; i++) {
      const round = all.slice(i * world, (i + 1) * world);
      starts.push((starts[i] as number) + round.reduce((sum, batch) => sum + batch.length, 0));
    }
    return {
      epoch,
      from,
      batches: Array.from({ length: each }, (_, i) => all[i * world + rank] as Uint32Array),
      starts,
    };
  }

  /** The batches of an epoch from a position on, in order. */
  #cutEpoch(epoch: number, from: number): Uint32Array[] {
    const { order = 'shuffled', seed = 42, lengthAware = false, dropLast = false } = this.#options;
    const { length } = this.#store;
    const random = new Random(seed, epoch);
    let indices: Uint32Array;
    if (order === 'shuffled') indices = random.permutation(length);
    else indices = Uint32Array.from({ length }, (_, i) => (order === 'replacement' ? random.int(0, length - 1) : i));
    if (!lengthAware) return this.#cut(indices.subarray(from), dropLast);
    const window = windowBatches * this.#examplesPerBatch();
    for (let start = 0; start < length; start += window) {
      indices.subarray(start, start + window).sort((a, b) => this.#lengthOf(a) - this.#lengthOf(b) || a - b);
    }
    // Batches of similar length are shuffled separately, so those before the position, already handed out, must be
    // skipped.
    let before = 0;
    return random.shuffle(this.#cut(indices, dropLast)).filter((batch) => {
      before += batch.length;
      return before > from;
    });
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
