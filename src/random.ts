/**
 * A seeded random generator. One seed gives the same data order, tasks and samples on every machine and Node version.
 *
 *     const random = new Random('chain_sum', seed, difficulty);
 *     random.int(0, 9); random.pick(words); random.shuffle(items); random.permutation(rows.length);
 *
 * The generator is xoshiro128** (Blackman and Vigna, 2018): 32-bit arithmetic, period 2^128 − 1. Its state is filled by
 * splitmix-style mixing of a hash of the key, so neighbouring seeds and different tasks give unrelated streams.
 */
/** Random numbers by a key: the same key always gives the same numbers. */
export class Random {
  #s0: number;
  #s1: number;
  #s2: number;
  #s3: number;

  constructor(...key: (number | string)[]) {
    const [low, high] = hash64(key.join('\u0000'));
    this.#s0 = mix(low ^ 0x9e3779b9);
    this.#s1 = mix(high ^ 0x243f6a88);
    this.#s2 = mix((low + 0x3c6ef372) | 0);
    // xoshiro must not start from four zeros: the last word is made odd.
    this.#s3 = mix((high + 0x85a308d3) | 0) | 1;
  }

  /** A generator with this state of four 32-bit words; tests compare it with published sequences. */
  static fromState(s0: number, s1: number, s2: number, s3: number): Random {
    const random = new Random();
    random.#s0 = s0;
    random.#s1 = s1;
    random.#s2 = s2;
    random.#s3 = s3;
    return random;
  }

  /** An integer from 0 to 2^32 − 1. */
  uint32(): number {
    const result = Math.imul(rotateLeft(Math.imul(this.#s1, 5), 7), 9) >>> 0;
    const t = this.#s1 << 9;
    this.#s2 ^= this.#s0;
    this.#s3 ^= this.#s1;
    this.#s1 ^= this.#s2;
    this.#s0 ^= this.#s3;
    this.#s2 ^= t;
    this.#s3 = rotateLeft(this.#s3, 11);
    return result;
  }

  /** A number in [0, 1) with 32 random bits. */
  float(): number {
    return this.uint32() / 2 ** 32;
  }

  /** An integer from low to high, both included, without modulo bias. */
  int(low: number, high: number): number {
    const span = high - low + 1;
    if (!(span >= 1 && span <= 2 ** 32)) throw new RangeError(`Random.int(${low}, ${high}): empty or too wide a range`);
    const limit = 2 ** 32 - (2 ** 32 % span);
    let word = this.uint32();
    while (word >= limit) word = this.uint32();
    return low + (word % span);
  }

  chance(probability: number): boolean {
    return this.float() < probability;
  }

  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError('Random.pick: nothing to pick from');
    return items[this.int(0, items.length - 1)] as T;
  }

  /** A shuffled copy (Fisher–Yates). */
  shuffle<T>(items: readonly T[]): T[] {
    const copy = [...items];
    for (let i = copy.length - 1; i > 0; i--) {
      const j = this.int(0, i);
      const held = copy[i] as T;
      copy[i] = copy[j] as T;
      copy[j] = held;
    }
    return copy;
  }

  /** 0 … length−1 in random order. */
  permutation(length: number): Uint32Array {
    const order = Uint32Array.from({ length }, (_, i) => i);
    for (let i = length - 1; i > 0; i--) {
      const j = this.int(0, i);
      const held = order[i] as number;
      order[i] = order[j] as number;
      order[j] = held;
    }
    return order;
  }

  /** `count` different items in random order. */
  sample<T>(items: readonly T[], count: number): T[] {
    return this.shuffle(items).slice(0, count);
  }

  /** A seed for something else: any safe non-negative integer. */
  seed(): number {
    return (this.uint32() & 0x1fffff) * 2 ** 32 + this.uint32();
  }
}

/** A number in [0, 1) that depends on the text and the seed alone: it decides which split a row goes to. */
export function unitHash(text: string, seed: number): number {
  return (hash64(`${seed}\u0000${text}`)[0] >>> 0) / 2 ** 32;
}

/** Two independent 32-bit hashes of a text (murmur-style multiply and rotate on UTF-16 units). */
export function hash64(text: string): [number, number] {
  let low = 0x6a09e667 ^ text.length;
  let high = 0xbb67ae85 ^ text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    low = rotateLeft(Math.imul(low ^ unit, 0xcc9e2d51), 13);
    high = rotateLeft(Math.imul(high ^ unit, 0x1b873593), 17);
    low = (low + high) | 0;
  }
  return [mix(low), mix(high ^ low)];
}

function mix(word: number): number {
  let x = word | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) | 0;
}

function rotateLeft(x: number, bits: number): number {
  return (x << bits) | (x >>> (32 - bits));
}
