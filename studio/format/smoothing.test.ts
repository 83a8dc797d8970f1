import { describe, expect, it } from 'vitest';
import { smoothed } from './smoothing.ts';

const x = Array.from({ length: 200 }, (_, i) => i);

describe('smoothing', () => {
  it('of nothing leaves the values', () => expect(smoothed([1, 2], [3, null], 0)).toEqual([3, null]));

  it('keeps a constant, from the first value on', () => {
    for (const value of smoothed(x, new Array(200).fill(5), 0.6)) expect(value).toBeCloseTo(5, 12);
  });

  it('takes noise away and follows the trend', () => {
    const noisy = x.map((i) => i / 100 + (i % 2 === 0 ? 0.5 : -0.5));
    const result = smoothed(x, noisy, 0.6) as number[];
    const jumps = result.slice(1).map((value, i) => Math.abs(value - (result[i] as number)));
    expect(Math.max(...jumps.slice(50))).toBeLessThan(0.1);
    expect(result.at(-1)).toBeGreaterThan(1.6);
    expect(result.at(-1)).toBeLessThan(2);
  });

  it('is an average weighted by exp(−distance / reach)', () => {
    const result = smoothed([0, 3, 4], [1, 0, 2], 0.5) as number[];
    const reach = 4 * 0.25 * 0.25;
    const weights = [4, 1, 0].map((distance) => Math.exp(-distance / reach));
    const [a, b, c] = weights as [number, number, number];
    expect(result[2]).toBeCloseTo((a * 1 + b * 0 + c * 2) / (a + b + c), 12);
  });

  it('leaves gaps where nothing was recorded', () =>
    expect(smoothed([0, 1, 2], [1, null, 1], 0.3)).toEqual([1, null, 1]));
});
