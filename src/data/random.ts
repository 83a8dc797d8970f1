/**
 * Seeded randomness for shuffles, subsets and splits: integer arithmetic only, so that one seed gives one order on
 * every platform and Node version.
 *
 *     const random = new Random(42, epoch);
 *     const order = random.permutation(rows.length);
 */
export class Random {
  // sfc32 (Chris Doty-Humphrey's small fast counting generator): 128 bits of state, passes PractRand.
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  /** Further numbers make independent streams of one seed, e.g. one per epoch. */
  constructor(seed: number, ...stream: number[]) {
    let mixed = mix32(seed >>> 0) ^ mix32(Math.floor(seed / 2 ** 32) >>> 0);
    for (const part of stream) mixed = mix32((mixed ^ mix32((part + 0x9e3779b9) >>> 0)) >>> 0);
    this.#a = mix32(mixed + 1);
    this.#b = mix32(mixed + 2);
    this.#c = mix32(mixed + 3);
    for (let i = 0; i < 12; i++) this.uint32();
  }

  uint32(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }

  /** Uniform in [0, 1). */
  float(): number {
    return this.uint32() / 2 ** 32;
  }

  /** Uniform in 0..limit−1, without the bias of a plain remainder. */
  below(limit: number): number {
    const ceiling = 2 ** 32 - (2 ** 32 % limit);
    let value = this.uint32();
    while (value >= ceiling) value = this.uint32();
    return value % limit;
  }

  /** Fisher–Yates, in place. */
  shuffle<A extends Uint32Array | unknown[]>(items: A): A {
    const list = items as unknown[];
    for (let i = list.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      const kept = list[i];
      list[i] = list[j];
      list[j] = kept;
    }
    return items;
  }

  permutation(length: number): Uint32Array {
    const order = new Uint32Array(length);
    for (let i = 0; i < length; i++) order[i] = i;
    return this.shuffle(order);
  }
}

/** A number in [0, 1) that depends on the text and the seed alone: what decides on which side of a split a row falls. */
export function unitHash(text: string, seed: number): number {
  // FNV-1a over UTF-16 units, then the avalanche of MurmurHash3, since FNV's high bits mix poorly on short keys.
  let hash = (0x811c9dc5 ^ mix32(seed >>> 0)) | 0;
  for (let i = 0; i < text.length; i++) {
    hash ^= text.charCodeAt(i);
    hash = Math.imul(hash, 0x01000193);
  }
  return mix32(hash) / 2 ** 32;
}

function mix32(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
