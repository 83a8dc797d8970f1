import { describe, expect, it } from 'vitest';
import { hash64, Random, unitHash } from './random.ts';

/** xoshiro128** written again with BigInt, from the paper's C code. */
function* xoshiro(state: [bigint, bigint, bigint, bigint]): Generator<number> {
  const mask = 0xffffffffn;
  const rotl = (x: bigint, k: bigint) => ((x << k) | (x >> (32n - k))) & mask;
  for (;;) {
    yield Number((rotl((state[1] * 5n) & mask, 7n) * 9n) & mask);
    const t = (state[1] << 9n) & mask;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotl(state[3], 11n);
  }
}

describe('Random', () => {
  it('is xoshiro128**', () => {
    const random = Random.fromState(1, 2, 3, 4);
    expect([random.uint32(), random.uint32(), random.uint32(), random.uint32()]).toEqual([11520, 0, 5927040, 70819200]);
    const ours = Random.fromState(0x12345678, 0x9abcdef0 | 0, 7, 0xffffffff | 0);
    const theirs = xoshiro([0x12345678n, 0x9abcdef0n, 7n, 0xffffffffn]);
    for (let i = 0; i < 2000; i++) expect(ours.uint32()).toBe(theirs.next().value);
  });

  it('gives every value of a range about as often (chi-squared)', () => {
    const random = new Random('range', 1);
    const counts = new Array<number>(10).fill(0);
    for (let i = 0; i < 100_000; i++) {
      const value = random.int(-4, 5);
      counts[value + 4] = (counts[value + 4] ?? 0) + 1;
    }
    const chiSquared = counts.reduce((sum, count) => sum + (count - 10_000) ** 2 / 10_000, 0);
    // 99.9 % of a chi-squared with 9 degrees of freedom lies below 27.9.
    expect(chiSquared).toBeLessThan(27.9);
    expect(() => random.int(3, 2)).toThrow(RangeError);
  });

  it('gives unrelated streams for neighbouring keys', () => {
    const firsts = new Set<number>();
    for (let seed = 0; seed < 20_000; seed++) firsts.add(new Random('task', seed, 1).uint32());
    // 20,000 draws from 2^32 collide 0.05 times on average.
    expect(firsts.size).toBeGreaterThan(19_996);
    let equalBits = 0;
    for (let seed = 0; seed < 2000; seed++) {
      const difference = new Random('task', seed).uint32() ^ new Random('task', seed + 1).uint32();
      for (let bit = 0; bit < 32; bit++) equalBits += (difference >>> bit) & 1 ? 0 : 1;
    }
    expect(equalBits / 64_000).toBeCloseTo(0.5, 2);
    expect(new Random('a', 12).uint32()).not.toBe(new Random('a1', 2).uint32());
  });

  it('shuffles every order equally and keeps all items', () => {
    const random = new Random('shuffle');
    const orders = new Map<string, number>();
    for (let i = 0; i < 24_000; i++) {
      const order = random.shuffle(['a', 'b', 'c', 'd']).join('');
      orders.set(order, (orders.get(order) ?? 0) + 1);
    }
    expect(orders.size).toBe(24);
    for (const count of orders.values()) expect(Math.abs(count - 1000)).toBeLessThan(160);
    expect(random.sample([1, 2, 3, 4, 5], 3)).toHaveLength(3);
    expect(() => random.pick([])).toThrow(RangeError);
  });

  it('makes seeds that are safe integers, and hashes that differ', () => {
    const random = new Random('seeds');
    for (let i = 0; i < 1000; i++) expect(Number.isSafeInteger(random.seed())).toBe(true);
    const hashes = new Set(Array.from({ length: 20_000 }, (_, i) => hash64(`What is ${i} + 1?`).join()));
    expect(hashes.size).toBe(20_000);
  });
});

describe('permutation', () => {
  it('has every number once, in another order for another key', () => {
    const order = new Random(1).permutation(1000);
    expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: 1000 }, (_, i) => i));
    expect(new Random(1).permutation(1000)).toEqual(order);
    expect(new Random(2).permutation(1000)).not.toEqual(order);
    expect(new Random(1, 1).permutation(1000)).not.toEqual(order);
  });
});

describe('unitHash', () => {
  it('depends on text and seed, and spreads near-identical texts evenly', () => {
    expect(unitHash('hello', 42)).toBe(unitHash('hello', 42));
    expect(unitHash('hello', 42)).not.toBe(unitHash('hello', 43));
    const below = Array.from({ length: 10_000 }, (_, i) => unitHash(`question ${i}`, 7)).filter((x) => x < 0.1).length;
    expect(below).toBeGreaterThan(880);
    expect(below).toBeLessThan(1120);
  });
});
