/**
 * One micro-batch through sharded weights. A block is gathered before its forward and again before backward, which runs
 * its forward a second time. The next block is gathered meanwhile; a block's gradients are sent as soon as they are
 * complete.
 *
 *     gathered:   0 1 2 3 | 2 1 0        (the last block stays between forward and backward)
 *     reduced:            | 3 2 1 0, then the parameters outside blocks
 *
 * Every rank runs through the same collectives, even if it has no micro-batch (`finish`).
 */
import type { Bucket } from '../buckets.ts';
import type { Exchange } from '../exchange.ts';
import type { ShardedWeights } from './sharded-weights.ts';

export class ShardedPass {
  readonly recomputes = true;
  readonly #weights: ShardedWeights;
  readonly #exchange: Exchange;
  readonly #ranks: number;
  /** The blocks in the order in which they are used: forward, then backward. */
  readonly #uses: readonly number[];
  /** Uses that are done, and those that are gathered or being gathered. */
  #done = 0;
  #asked = 0;
  #isThere = false;

  /** `lowest`: the lowest block that backward reaches. */
  constructor(weights: ShardedWeights, exchange: Exchange, { ranks, lowest }: { ranks: number; lowest: number }) {
    this.#weights = weights;
    this.#exchange = exchange;
    this.#ranks = ranks;
    const count = weights.blockCount;
    const up = Array.from({ length: count }, (_, i) => i);
    this.#uses = [...up, ...up.slice(lowest).reverse()];
  }

  beforeForward(): void {
    this.#need();
  }
  afterForward(): void {
    this.#release();
  }
  beforeBackward(): void {
    this.#need();
  }
  afterBackward(): void {
    this.#release();
  }

  /** Runs through the remaining uses without computing, then sends the gradients outside blocks. */
  finish(): void {
    while (this.#done < this.#uses.length) {
      this.#need();
      this.#release();
    }
    this.#reduce(({ block }) => block === null);
  }

  /** Waits for the block that is used next, and requests the one after it. */
  #need(): void {
    if (this.#isThere) return;
    this.#askUpTo(this.#done);
    if (!this.#isKept(this.#done)) this.#weights.join(this.#uses[this.#done] as number);
    this.#isThere = true;
    this.#askUpTo(this.#done + 1);
  }

  #askUpTo(use: number): void {
    for (; this.#asked <= use && this.#asked < this.#uses.length; this.#asked++)
      if (!this.#isKept(this.#asked)) this.#weights.start(this.#uses[this.#asked] as number);
  }

  /** The last block's backward follows its forward. */
  #isKept(use: number): boolean {
    return use > 0 && this.#uses[use] === this.#uses[use - 1];
  }

  #release(): void {
    const block = this.#uses[this.#done] as number;
    if (this.#done >= this.#weights.blockCount) this.#reduce((bucket) => bucket.block === block);
    if (!this.#isKept(this.#done + 1)) this.#weights.drop(block);
    this.#done++;
    this.#isThere = false;
  }

  #reduce(holds: (bucket: Bucket) => boolean): void {
    const { order, buckets } = this.#exchange;
    for (const index of order) {
      if (holds(buckets[index] as Bucket)) this.#exchange.begin(index, this.#ranks);
    }
  }
}
