/** Which blocks of the cache are free, and how many sequences hold each of the others. */
export class Blocks {
  readonly #free: number[];
  readonly #holders: number[];

  constructor(count: number) {
    this.#free = Array.from({ length: count }, (_, i) => count - 1 - i);
    this.#holders = Array.from({ length: count }, () => 0);
  }

  get free(): number {
    return this.#free.length;
  }
  get used(): number {
    return this.#holders.length - this.#free.length;
  }

  /** A free block, held once. */
  take(): number {
    const block = this.#free.pop();
    if (block === undefined) throw new Error('no block of the cache is free');
    this.#holders[block] = 1;
    return block;
  }

  /** Adds a holder to each of these blocks. */
  hold(blocks: readonly number[]): void {
    for (const block of blocks) this.#holders[block] = this.holders(block) + 1;
  }

  /** Removes a holder from each of these blocks; those left without one become free. */
  release(blocks: readonly number[]): void {
    for (const block of blocks) {
      const left = this.holders(block) - 1;
      if (left < 0) throw new Error('a free block of the cache was released');
      this.#holders[block] = left;
      if (left === 0) this.#free.push(block);
    }
  }

  holders(block: number): number {
    return this.#holders[block] as number;
  }
}
