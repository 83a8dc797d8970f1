import { describe, expect, it } from 'vitest';
import { Random, unitHash } from './random.ts';

describe('Random', () => {
  it('gives the numbers of an independent implementation (Python integers)', () => {
    const random = new Random(42);
    expect([random.uint32(), random.uint32(), random.uint32(), random.uint32()]).toEqual([
      1907041908, 2334850962, 1715489475, 3299552976,
    ]);
    const stream = new Random(42, 1);
    expect([stream.uint32(), stream.uint32(), stream.uint32()]).toEqual([1587694495, 938066741, 4208192289]);
  });

  it('permutes: every number once, another order for another seed or stream', () => {
    const order = new Random(1).permutation(1000);
    expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: 1000 }, (_, i) => i));
    expect(new Random(1).permutation(1000)).toEqual(order);
    expect(new Random(2).permutation(1000)).not.toEqual(order);
    expect(new Random(1, 1).permutation(1000)).not.toEqual(order);
  });

  it('is even: each place of a small shuffle gets each item about equally often', () => {
    const random = new Random(3);
    const counts = Array.from({ length: 4 }, () => [0, 0, 0, 0]);
    for (let i = 0; i < 8000; i++) {
      random.shuffle([0, 1, 2, 3]).forEach((item, place) => {
        const row = counts[place] as number[];
        row[item] = (row[item] ?? 0) + 1;
      });
    }
    // Standard deviation of a cell is about 39; five of them.
    for (const row of counts) for (const count of row) expect(Math.abs(count - 2000)).toBeLessThan(195);
  });
});

describe('unitHash', () => {
  it('depends on text and seed alone, as worked out independently', () => {
    expect(unitHash('hello', 42)).toBeCloseTo(0.7024018405936658, 12);
    expect(unitHash('hello', 43)).toBeCloseTo(0.1900270718615502, 12);
  });

  it('spreads near-identical texts evenly', () => {
    const below = Array.from({ length: 10_000 }, (_, i) => unitHash(`question ${i}`, 7)).filter((x) => x < 0.1).length;
    expect(below).toBeGreaterThan(880);
    expect(below).toBeLessThan(1120);
  });
});
