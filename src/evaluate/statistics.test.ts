import { expect, it } from 'vitest';
import { figureOf, mcnemarExact, pairedTest } from './statistics.ts';

const binomials = (n: number) => {
  let row = [1];
  for (let i = 0; i < n; i++) row = [1, ...row.slice(1).map((value, k) => value + (row[k] as number)), 1];
  return row;
};

it.each([
  [7, 10],
  [0, 5],
  [5, 5],
  [431, 1319],
])('gives Wilson’s interval of %i in %i: the shares p with |p̂ − p| = z·√(p(1 − p)/n)', (right, n) => {
  const scores = Array.from({ length: n }, (_, i) => Number(i < right));
  const { value, interval, by } = figureOf(scores);
  expect([value, by]).toEqual([right / n, 'wilson']);
  // The quadratic (p̂ − p)² n = z² p (1 − p), rearranged: (n + z²) p² − (2 n p̂ + z²) p + n p̂² = 0.
  const z2 = 1.959964 ** 2;
  const [a, b, c] = [n + z2, -(2 * right + z2), right ** 2 / n];
  const root = Math.sqrt(Math.max(0, b * b - 4 * a * c));
  expect(interval[0]).toBeCloseTo((-b - root) / (2 * a), 10);
  expect(interval[1]).toBeCloseTo((-b + root) / (2 * a), 10);
});

it.each([
  [0, 0],
  [1, 0],
  [8, 1],
  [5, 5],
  [30, 12],
])('McNemar’s exact p of %i against %i is a sum of binomials', (b, c) => {
  const counts = binomials(b + c);
  const tail = counts.slice(0, Math.min(b, c) + 1).reduce((sum, value) => sum + value, 0) / 2 ** (b + c);
  expect(mcnemarExact(b, c)).toBeCloseTo(Math.min(1, 2 * tail), 12);
});

it('keeps its head with many disagreements', () => {
  // The normal approximation with continuity correction: z = (|b − c| − 1)/√(b + c) = 3.19, two-sided p = 0.00142.
  expect(mcnemarExact(5160, 4840)).toBeCloseTo(0.00142, 4);
});

it('compares two models question by question', () => {
  const first = [1, 1, 1, 0, 1, 1, 0, 1];
  const second = [1, 0, 0, 0, 1, 0, 1, 1];
  const test = pairedTest(first, second, undefined, { seed: 3 });
  expect(test.difference).toBeCloseTo(2 / 8, 12);
  expect(test.mcnemar).toEqual({ only_first: 3, only_second: 1, p: 0.625 });
  expect(test.interval[0]).toBeLessThan(0.25);
  expect(test.interval[1]).toBeGreaterThan(0.25);
  expect(pairedTest(first, first).mcnemar?.p).toBe(1);
  expect(pairedTest(first, first).bootstrap_p).toBe(1);
});

it('draws an interval of scores between 0 and 1 that is as wide as the central limit says', () => {
  const scores = Array.from({ length: 400 }, (_, i) => (i % 5) / 4);
  const { value, interval, by } = figureOf(scores, undefined, { resamples: 1500 });
  expect([value, by]).toEqual([0.5, 'bootstrap']);
  // The scores' variance is 1/8, so the mean's standard error is √(1/8/400).
  const half = 1.96 * Math.sqrt(0.125 / 400);
  expect(interval[0]).toBeCloseTo(0.5 - half, 2);
  expect(interval[1]).toBeCloseTo(0.5 + half, 2);
});

it('weighs questions that hold several parts', () => {
  // one of one, one of three: 2 of 4 parts
  const { value, by } = figureOf([1, 1 / 3], [1, 3]);
  expect([value, by]).toEqual([0.5, 'bootstrap']);
  expect(pairedTest([1, 1 / 3], [0, 1], [1, 3]).difference).toBeCloseTo((1 - 2) / 4, 12);
  expect(pairedTest([1, 1], [0, 1], [1, 3]).mcnemar).toBeUndefined();
});
