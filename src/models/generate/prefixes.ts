/**
 * A finished sequence whose keys and values are still in its slot: a prompt that begins with the same tokens (the next turn of
 * a conversation) reuses them. Prefixes are matched by token ids; the least recently used is evicted first.
 */
export interface Prefix {
  slot: number;
  prompt: ArrayLike<number>;
  /** The response's tokens; the newest one is not in the slot yet. */
  written: readonly number[];
  /** The adapter and the state of the weights that the keys and values were computed with. */
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

  /** Marks a prefix as just used. */
  touch(prefix: Prefix): void {
    if (this.#bySlot.get(prefix.slot) === prefix) this.keep(prefix);
  }

  /** Removes the prefix of a slot; returns whether there was one. */
  take(slot: number): boolean {
    return this.#bySlot.delete(slot);
  }

  /** Evicts the least recently used prefix other than `spared` and returns its slot; undefined where there is none. */
  evict(spared?: Prefix): number | undefined {
    for (const { slot } of this.#bySlot.values()) {
      if (slot === spared?.slot) continue;
      this.#bySlot.delete(slot);
      return slot;
    }
    return undefined;
  }

  /** Evicts all prefixes and returns their slots. */
  clear(): number[] {
    const slots = [...this.#bySlot.keys()];
    this.#bySlot.clear();
    return slots;
  }
}

/** How many tokens are in a prefix's slot. */
export const prefixLength = ({ prompt, written }: Prefix): number => prompt.length + Math.max(0, written.length - 1);

/** How many first tokens a prompt and a prefix share, at most `most`. */
function sharedLength(ids: ArrayLike<number>, { prompt, written }: Prefix, most: number): number {
  const inPrompt = Math.min(most, prompt.length);
  let length = 0;
  while (length < inPrompt && prompt[length] === ids[length]) length++;
  if (length < prompt.length) return length;
  while (length < most && written[length - prompt.length] === ids[length]) length++;
  return length;
}

/**
 * The prefix that shares the most first tokens with the prompt, where these are half of it or more. The prompt's last token is
 * always left to compute.
 */
export function longestMatch(prompt: ArrayLike<number>, weights: string, prefixes: Iterable<Prefix>): Match | null {
  let best: Match | null = null;
  for (const prefix of prefixes) {
    if (prefix.weights !== weights) continue;
    const length = sharedLength(prompt, prefix, Math.min(prefixLength(prefix), prompt.length - 1));
    if (length > (best?.length ?? 0)) best = { prefix, length };
  }
  // The rest of a prompt goes through as rows of a decoding step, which costs more a token than reading a prompt afresh:
  // a few words in common, such as a template's first ones, are not worth it.
  return best !== null && best.length >= prompt.length - best.length ? best : null;
}
