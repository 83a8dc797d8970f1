/**
 * A finished sequence whose keys and values are still in the cache: a prompt that begins with the same tokens (the next turn of
 * a conversation) reuses them. Prefixes are matched by token ids; the least recently used is evicted first.
 */
export interface Prefix {
  /** The blocks of its positions, in order. */
  blocks: readonly number[];
  prompt: ArrayLike<number>;
  /** The response's tokens; the newest one is not in the cache yet. */
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
  /** In order of use, least recent first. */
  readonly #all = new Set<Prefix>();

  get size(): number {
    return this.#all.size;
  }

  keep(prefix: Prefix): void {
    this.#all.delete(prefix);
    this.#all.add(prefix);
  }

  values(): Iterable<Prefix> {
    return this.#all.values();
  }

  has(prefix: Prefix): boolean {
    return this.#all.has(prefix);
  }

  /** Marks a prefix as just used. */
  touch(prefix: Prefix): void {
    if (this.has(prefix)) this.keep(prefix);
  }

  /** Removes a prefix; returns whether it was there. */
  take(prefix: Prefix): boolean {
    return this.#all.delete(prefix);
  }

  /** Removes and returns the least recently used prefix other than `spared`; undefined if there is none. */
  evict(spared?: Prefix): Prefix | undefined {
    for (const prefix of this.#all) {
      if (prefix === spared) continue;
      this.#all.delete(prefix);
      return prefix;
    }
    return undefined;
  }
}

/** How many tokens of a prefix are in the cache. */
export const prefixLength = ({ prompt, written }: Prefix): number => prompt.length + Math.max(0, written.length - 1);

const tokenAt = ({ prompt, written }: Prefix, place: number): number | undefined =>
  place < prompt.length ? prompt[place] : written[place - prompt.length];

/** The length of the common beginning of a prompt and a prefix, at most `most`. */
function sharedLength(ids: ArrayLike<number>, { prompt, written }: Prefix, most: number): number {
  const inPrompt = Math.min(most, prompt.length);
  let length = 0;
  while (length < inPrompt && prompt[length] === ids[length]) length++;
  if (length < prompt.length) return length;
  while (length < most && written[length - prompt.length] === ids[length]) length++;
  return length;
}

/**
 * The prefix with the longest common beginning with the prompt, if that is half of the prompt or more. The prompt's
 * last token is always left to compute.
 */
export function longestMatch(prompt: ArrayLike<number>, weights: string, prefixes: Iterable<Prefix>): Match | null {
  let best: Match | undefined;
  let longest = 0;
  for (const prefix of prefixes) {
    // One comparison rules out most of those that share a system prompt with the best one.
    if (prefix.weights !== weights || tokenAt(prefix, longest) !== prompt[longest]) continue;
    const length = sharedLength(prompt, prefix, Math.min(prefixLength(prefix), prompt.length - 1));
    if (length <= longest) continue;
    longest = length;
    best = { prefix, length };
  }
  // The rest of a prompt goes through as rows of a decoding step, which costs more per token than reading a prompt
  // afresh: a few words in common, such as a template's first ones, are not worth it.
  return best !== undefined && longest >= prompt.length - longest ? best : null;
}
