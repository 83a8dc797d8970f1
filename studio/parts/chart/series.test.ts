import { describe, expect, it } from 'vitest';
import { align, rangeOf, stepAt, valueAt } from './series.ts';

const series = (x: number[], y: (number | null)[]) => ({ label: '', color: '', x, y, step: x.map((at) => at * 10) });

describe('series on one axis', () => {
  it('keeps every point where it was', () => {
    const aligned = align([series([1, 2, 4], [5, 6, 7]), series([2, 3], [0.5, null])], 0, false);
    expect(aligned.x).toEqual([1, 2, 3, 4]);
    expect(aligned.step).toEqual([10, 20, 30, 40]);
    expect(aligned.raw).toEqual([
      [5, 6, undefined, 7],
      [undefined, 0.5, null, undefined],
    ]);
    expect(aligned.smooth).toEqual(aligned.raw);
  });

  it('leaves out what a logarithm cannot show', () =>
    expect(align([series([1, 2, 3], [0, -1, 2])], 0, true).raw).toEqual([[null, null, 2]]));

  it('finds the step that a series has there, whatever the axis', () => {
    const slow = { x: [10, 25, 40], step: [1, 2, 3] };
    expect([0, 10, 30, 99].map((at) => stepAt(slow, at))).toEqual([1, 1, 2, 3]);
  });

  it('finds the value at the cursor', () => {
    const row = [undefined, 1, null, undefined, 3];
    expect([0, 1, 3, 4, 9].map((i) => valueAt(row, i))).toEqual([undefined, 1, 1, 3, 3]);
  });

  it('draws shares from 0 to 1, and keeps 0 as a floor', () => {
    expect(rangeOf(0.3, 0.4, 1)).toEqual([0, 1]);
    expect(rangeOf(0.3, 1.4, 1)[1]).toBeGreaterThan(1.4);
    expect(rangeOf(0, 10)[0]).toBe(0);
    expect(rangeOf(100, 110)[0]).toBeGreaterThan(90);
    const [low, high] = rangeOf(5, 5);
    expect(low < 5 && 5 < high).toBe(true);
    expect(rangeOf(null, null)).toEqual([0, 1]);
  });

  it('lets a share that stays small fill its panel, down to a floor', () => {
    expect(rangeOf(0, 0.002, 0.05)).toEqual([0, 0.05]);
    expect(rangeOf(0.01, 0.5, 0.05)).toEqual([0, 0.53]);
    expect(rangeOf(0, 0.99, 0.05)).toEqual([0, 1]);
    expect(rangeOf(0, 0, 0.05)).toEqual([0, 0.05]);
  });
});
