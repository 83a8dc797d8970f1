import { expect, it } from 'vitest';
import { meanAndError, wilson } from './error-bars.ts';

/** Published values: Newcombe (1998), table I, method 3. */
it.each([
  [81, 263, 0.2553, 0.3662],
  [15, 148, 0.0624, 0.1605],
  [0, 20, 0, 0.1611],
  [1, 29, 0.0061, 0.1718],
])('%d of %d: from %d to %d', (right, n, low, high) => {
  const found = wilson(right / n, n);
  expect(found[0]).toBeCloseTo(low, 4);
  expect(found[1]).toBeCloseTo(high, 4);
});

it('a mean has the standard error of its values', () => {
  expect(meanAndError([1, 2, 3])).toEqual({ mean: 2, error: expect.closeTo(1 / Math.sqrt(3), 12) });
  expect(meanAndError([4])).toEqual({ mean: 4, error: 0 });
});
