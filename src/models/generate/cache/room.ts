/**
 * Tracks who holds which slots and blocks of a cache: the sequences being written, and finished ones kept as prefixes.
 * Sequences share the full blocks of what they have in common. The block that a sequence writes to is its own: a
 * partial block that another sequence also holds is copied first. If blocks run out, prefixes are given up, the least
 * recently used first.
 */
import { Blocks } from './blocks.ts';
import { BLOCK, blocksFor, type KvCache } from './cache.ts';
import { type Prefix, Prefixes } from './prefixes.ts';

/** A row as Room sees it: its slot (−1 for none), its prompt, its tokens so far and the position of the newest. */
export interface Sequence {
  slot: number;
  readonly position: number;
  readonly ids: readonly number[];
  readonly request: { prompt: ArrayLike<number> };
}

export class Room {
  readonly #cache: KvCache;
  readonly #blocks: Blocks;
  readonly #prefixes: Prefixes;
  readonly #slots: number[];

  constructor(cache: KvCache) {
    this.#cache = cache;
    this.#blocks = new Blocks(cache.blocks);
    this.#prefixes = new Prefixes();
    this.#slots = Array.from({ length: cache.slots }, (_, i) => cache.slots - 1 - i);
  }

  get freeSlots(): number {
    return this.#slots.length;
  }
  get usedBlocks(): number {
    return this.#blocks.used;
  }
  get prefixes(): Iterable<Prefix> {
    return this.#prefixes.values();
  }

  /** The sequence in a slot, as a prefix for others. */
  prefixOf({ slot, request, ids }: Sequence, weights: string): Prefix {
    return { blocks: this.#cache.table(slot), prompt: request.prompt, written: ids, weights };
  }

  /**
   * Gives up prefixes, `spared` last, until this many blocks are free. Returns false, with all prefixes kept, if that
   * is not enough.
   */
  free(count: number, spared?: Prefix): boolean {
    if (this.#blocks.free < count && this.#withoutPrefixes() < count) return false;
    while (this.#blocks.free < count) {
      const evicted = this.#prefixes.evict(spared) ?? (this.#prefixes.evict() as Prefix);
      this.#blocks.release(evicted.blocks);
    }
    return true;
  }

  /** How many blocks would be free without any prefix. */
  #withoutPrefixes(): number {
    const holders = new Map<number, number>();
    for (const { blocks } of this.#prefixes.values())
      for (const block of blocks) holders.set(block, (holders.get(block) ?? 0) + 1);
    let count = this.#blocks.free;
    for (const [block, kept] of holders) if (this.#blocks.holders(block) === kept) count++;
    return count;
  }

  /** Holds the blocks of the first `length` positions for the caller, who hands them over or releases them. */
  hold(blocks: readonly number[], length: number): number[] {
    const held = blocks.slice(0, blocksFor(length));
    this.#blocks.hold(held);
    return held;
  }
  release(blocks: readonly number[]): void {
    this.#blocks.release(blocks);
  }

  /** The blocks of a row's slot. */
  blocksOf({ slot }: Sequence): readonly number[] {
    return this.#cache.table(slot);
  }

  touch(prefix: Prefix): void {
    this.#prefixes.touch(prefix);
  }

  /** Gives up a prefix, if it is still kept. */
  drop(prefix: Prefix): void {
    if (this.#prefixes.take(prefix)) this.#blocks.release(prefix.blocks);
  }

  /** Gives up all prefixes. */
  forget(): void {
    for (let each = this.#prefixes.evict(); each !== undefined; each = this.#prefixes.evict())
      this.#blocks.release(each.blocks);
  }

  /**
   * How many of these blocks a sequence can begin with: all, except a partial one that another sequence also holds.
   * `ending`: a prefix that is dropped first.
   */
  usable(held: readonly number[], length: number, ending?: Prefix): number {
    const last = held.at(-1);
    if (last === undefined || length % BLOCK === 0) return held.length;
    const own = ending !== undefined && this.#prefixes.has(ending) ? 2 : 1;
    return held.length - (this.#blocks.holders(last) > own ? 1 : 0);
  }

  /**
   * Gives a row a slot that begins with the first `length` positions of `held`, blocks that the caller holds and hands
   * over, and free blocks for the rest of its current positions.
   */
  begin(row: Sequence, held: readonly number[], length: number): void {
    const blocks = [...held];
    if (this.usable(held, length) < held.length) {
      const last = blocks.at(-1) as number;
      const own = this.#blocks.take();
      this.#cache.copyBlocks([last], [own]);
      this.#blocks.release([last]);
      blocks[blocks.length - 1] = own;
    }
    row.slot = this.#slots.pop() as number;
    this.#cache.setTable(row.slot, blocks);
    this.grow(row, row.position + 1);
  }

  /** How many blocks a row lacks for this many positions. */
  lacking({ slot }: Sequence, positions: number): number {
    return Math.max(0, blocksFor(positions) - this.#cache.table(slot).length);
  }

  /** Gives a row the blocks for this many positions; they must be free. */
  grow(row: Sequence, positions: number): void {
    const count = this.lacking(row, positions);
    if (count === 0) return;
    const more = Array.from({ length: count }, () => this.#blocks.take());
    this.#cache.setTable(row.slot, [...this.#cache.table(row.slot), ...more]);
  }

  /** Takes a row's slot and blocks. Its sequence is kept as a prefix if `weights` says what it was computed with. */
  end(row: Sequence, weights: string | null): void {
    const blocks = this.#cache.table(row.slot);
    this.#cache.setTable(row.slot, []);
    this.#slots.push(row.slot);
    row.slot = -1;
    if (weights === null || row.ids.length === 0) {
      this.#blocks.release(blocks);
      return;
    }
    const filled = blocksFor(row.position); // the newest token is not in the cache
    this.#blocks.release(blocks.slice(filled));
    const { request, ids } = row;
    this.#prefixes.keep({ blocks: blocks.slice(0, filled), prompt: request.prompt, written: ids, weights });
    if (this.#prefixes.size > this.#cache.slots) this.#blocks.release(this.#prefixes.evict()?.blocks ?? []);
  }
}
