import { expect, it } from 'vitest';
import { areaUnderCurve, bestOfN, type GradedScore, pairwiseAccuracy, topAccuracy } from './ranking.ts';

const of = (...entries: [number, boolean][]): GradedScore[] => entries.map(([score, correct]) => ({ score, correct }));

const groups = [
  of([0.9, true], [0.5, false], [0.1, true]),
  of([0.3, true], [0.7, false], [0.3, false]),
  of([0.2, false], [0.1, false]),
];

it('counts pairs within a group, ties one half', () => {
  // first group: 0.9 > 0.5 right, 0.1 < 0.5 wrong; second: 0.3 < 0.7 wrong, 0.3 = 0.3 counts half
  expect(pairwiseAccuracy(groups)).toBe(1.5 / 4);
  expect(pairwiseAccuracy([of([1, true])])).toBeUndefined();
});

it('takes the top of mixed groups only', () => {
  expect(topAccuracy(groups)).toBe(0.5);
  expect(topAccuracy([of([1, true], [1, false])])).toBe(0.5);
});

it('finds the area under the curve by ranks', () => {
  const scores = of([0.1, false], [0.4, false], [0.35, true], [0.8, true]);
  // sklearn.metrics.roc_auc_score([0, 0, 1, 1], [.1, .4, .35, .8])
  expect(areaUnderCurve(scores)).toBe(0.75);
  expect(areaUnderCurve(of([1, true], [1, false]))).toBe(0.5);
});

it('expects of the best of n what drawing all subsets gives', () => {
  const group = of([4, false], [3, true], [2, true], [1, false]);
  const all = [0, 1, 2, 3];
  const pairs = all.flatMap((i) => all.filter((j) => j > i).map((j) => [i, j]));
  const solved = pairs.filter(([i, j]) => {
    const picked = [group[i as number], group[j as number]].sort((a, b) => (b?.score ?? 0) - (a?.score ?? 0))[0];
    return picked?.correct;
  });
  expect(bestOfN([group], 2)).toBeCloseTo(solved.length / pairs.length, 12);
  expect(bestOfN([group], 1)).toBe(0.5);
  expect(bestOfN([group], 4)).toBe(0);
  expect(bestOfN([group], 5)).toBeUndefined();
});
