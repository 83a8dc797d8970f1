import { describe, expect, it } from 'vitest';
import { decodeBlocks, encodeBlocks } from './blocks.ts';

/** A block of 32 values: these, then zeros. */
const block = (...values: number[]) => Float32Array.from({ length: 32 }, (_, i) => values[i] ?? 0);
const bytesOf = (values: Float32Array, type: 'q8_0' | 'q4_0') => [...encodeBlocks(values, type)];

describe('q8_0', () => {
  it('is a scale of max/127 and rounded codes', () => {
    // scale 1 (f16 0x3c00, low byte first): the codes are the values, halves rounded away from zero
    const [low, high, ...codes] = bytesOf(block(127, -127, 1, 0.5, -0.5, 1.49, -2.5), 'q8_0');
    expect([low, high]).toEqual([0x00, 0x3c]);
    expect(codes.slice(0, 8)).toEqual([127, 256 - 127, 1, 1, 256 - 1, 1, 256 - 3, 0]);
    expect(codes).toHaveLength(32);
  });

  it('rounds the scale to f16 after the codes are taken', () => {
    // 0.1/127 = 7.874e-4 → f16 0x1273 = 7.8726e-4
    const bytes = encodeBlocks(block(0.1, 0.05), 'q8_0');
    expect([...bytes.slice(0, 4)]).toEqual([0x73, 0x12, 127, 64]);
    const [first, second] = decodeBlocks(bytes, 'q8_0');
    expect(first).toBeCloseTo(127 * 7.8726e-4, 6);
    expect(second).toBeCloseTo(64 * 7.8726e-4, 6);
  });

  it('of nothing is nothing', () => expect(bytesOf(block(), 'q8_0')).toEqual(new Array(34).fill(0)));
});

describe('q4_0', () => {
  it('takes the largest value with its sign for −8', () => {
    // m = −8: scale 1; codes x + 8.5 cut off; value 16 shares a byte with value 0, in its upper half
    const values = block(-8, -7, 3.4, 3.5, 7, 7.9);
    values[16] = 1;
    const [low, high, ...codes] = bytesOf(values, 'q4_0');
    expect([low, high]).toEqual([0x00, 0x3c]);
    expect(codes.slice(0, 7)).toEqual([
      0 | (9 << 4),
      1 | (8 << 4),
      11 | 0x80,
      12 | 0x80,
      15 | 0x80,
      15 | 0x80,
      8 | 0x80,
    ]);
    expect(codes).toHaveLength(16);
    const back = decodeBlocks(encodeBlocks(values, 'q4_0'), 'q4_0');
    expect([...back.slice(0, 7), back[16]]).toEqual([-8, -7, 3, 4, 7, 7, 0, 1]);
  });

  it('of a positive extreme has a negative scale', () => {
    // m = 4: scale −0.5 (0xb800)
    const bytes = encodeBlocks(block(4, -4, 1), 'q4_0');
    expect([...bytes.slice(0, 5)]).toEqual([0x00, 0xb8, 0 | 0x80, 15 | 0x80, 6 | 0x80]);
    expect([...decodeBlocks(bytes, 'q4_0').slice(0, 4)]).toEqual([4, -3.5, 1, -0]);
  });

  it('of nothing is nothing', () => {
    expect([...decodeBlocks(encodeBlocks(block(), 'q4_0'), 'q4_0')].every((value) => value === 0)).toBe(true);
  });
});

it("is off by no more than half a step, and by a whole one at q4_0's far end", () => {
  const values = Float32Array.from({ length: 3200 }, (_, i) => Math.sin(i * 12.9898) * (1 + (i % 7)));
  for (const [type, steps] of [
    ['q8_0', 127],
    ['q4_0', 8],
  ] as const) {
    const back = decodeBlocks(encodeBlocks(values, type), type);
    for (let start = 0; start < values.length; start += 32) {
      const own = values.subarray(start, start + 32);
      const step = Math.max(...own.map(Math.abs)) / steps;
      // Rounding the scale to f16 moves code 127 by up to 1/16 of a step more.
      // q4_0 has 15 steps where 16 are needed: the far end on the other side is off by a whole step
      own.forEach((value, i) => {
        expect(Math.abs(value - (back[start + i] as number))).toBeLessThan((type === 'q8_0' ? 0.57 : 1.02) * step);
      });
    }
  }
});
