/**
 * Slots of finished responses whose keys and values are still there, so that a prompt that begins with the same tokens (a
 * conversation's next turn) need not be computed again. Matched by token ids; the least recently used goes first.
 */
export interface Prefix {
  slot: number;
  ids: readonly number[];
  /** What the keys and values were computed with: an adapter and the state of the weights. */
  weights: string;
}

/** A prefix and how many of its tokens a prompt begins with. */
export interface Match {
  prefix: Prefix;
  length: number;
}

export class Prefixes {
  /** In the order of use. */
  readonly #bySlot = new Map<number, Prefix>();

  get size(): number {
    return this.#bySlot.size;
  }

  keep(prefix: Prefix): void {
    this.#bySlot.delete(prefix.slot);
    this.#bySlot.set(prefix.slot, prefix);
  }

  values(): Iterable<Prefix> {
    return this.#bySlot.values();
  }

  /** Notes that it was of use. */
  touch(prefix: Prefix): void {
    if (this.#bySlot.get(prefix.slot) === prefix) this.keep(prefix);
  }

  /** Whether the slot was held; it no longer is. */
  take(slot: number): boolean {
    return this.#bySlot.delete(slot);
  }

  /** Gives up the least recently used one, other than `spared`; undefined where there is none. */
  evict(spared?: Prefix): number | undefined {
    for (const { slot } of this.#bySlot.values()) {
      if (slot === spared?.slot) continue;
      this.#bySlot.delete(slot);
      return slot;
    }
    return undefined;
  }

  /** Gives up all; returns their slots. */
  clear(): number[] {
    const slots = [...this.#bySlot.keys()];
    this.#bySlot.clear();
    return slots;
  }
}

/** The prefix that has most in common with the prompt's beginning. The prompt's last token is always left to compute. */
export function longestMatch(prompt: ArrayLike<number>, weights: string, prefixes: Iterable<Prefix>): Match | null {
  let best: Match | null = null;
  for (const prefix of prefixes) {
    if (prefix.weights !== weights) continue;
    const most = Math.min(prefix.ids.length, prompt.length - 1);
    let length = 0;
    while (length < most && prefix.ids[length] === prompt[length]) length++;
    if (length > (best?.length ?? 0)) best = { prefix, length };
  }
  return best;
}
