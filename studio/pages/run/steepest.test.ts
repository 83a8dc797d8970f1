import { describe, expect, it } from 'vitest';
import { steepestFall } from './steepest.ts';

const curve = (y: (number | null)[]) => ({ y, step: y.map((_, i) => 10 * (i + 1)) });

describe('the steepest fall', () => {
  it('is where the values after are lowest beside those before', () => {
    expect(steepestFall(curve([0.6, 0.7, 0.6, 0.7, 0, 0, 0.1, 0]))).toEqual({ before: 40, step: 50 });
    expect(steepestFall(curve([0.6, 0.2, null, 0, 0, 0, 0]))).toEqual({ before: 10, step: 20 });
  });

  it('is nowhere in what only rises', () => {
    expect(steepestFall(curve([0, 1, 2, 3]))).toBeUndefined();
    expect(steepestFall(curve([1]))).toBeUndefined();
  });
});
