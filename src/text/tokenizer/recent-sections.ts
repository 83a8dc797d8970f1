/**
 * The ids of long sections of text that were encoded recently. A conversation is sent whole at every turn, and its
 * earlier messages lie between added tokens, so the same sections recur. Bounded by characters; the least recently used
 * section is evicted first.
 */

/** Shorter sections are encoded again, which is as fast as looking them up. */
const SHORTEST = 256;
const MOST_CHARACTERS = 2 ** 21;

export class RecentSections {
  readonly #ids = new Map<string, Int32Array>();
  #characters = 0;

  /** The ids of a section, cached or by `encode`. `atStart`: it is the beginning of the whole text. */
  idsOf(text: string, atStart: boolean, encode: () => number[]): ArrayLike<number> {
    if (text.length < SHORTEST) return encode();
    const key = `${atStart ? '^' : ' '}${text}`;
    const known = this.#ids.get(key);
    const ids = known ?? Int32Array.from(encode());
    if (known === undefined) this.#characters += key.length;
    else this.#ids.delete(key); // put back as the newest
    this.#ids.set(key, ids);
    for (const oldest of this.#ids.keys()) {
      if (this.#characters <= MOST_CHARACTERS) break;
      this.#ids.delete(oldest);
      this.#characters -= oldest.length;
    }
    return ids;
  }

  get characters(): number {
    return this.#characters;
  }
}
