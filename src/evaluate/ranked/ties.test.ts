import { describe, expect, it } from 'vitest';
import { rankedFigures } from './figures.ts';
import { itemReader } from './items.ts';
import { tiesFigures } from './ties.ts';

const row = (id: string, chosen: string[], rejected: string[]) => ({
  id,
  prompt: 'p',
  chosen,
  rejected,
  subset: 'Ties',
});
const read = itemReader('set');
const item = (id: string, right: number[], wrong: number[]) => ({
  ...read(row(id, right.map(String), wrong.map(String))),
  scores: [...right, ...wrong],
});

describe('RewardBench 2’s subset Ties', () => {
  // By hand. 1: leads 2 and 1, spread 0.5. 2: leads −1 and 3, spread 2. 3: leads 1 and 2, spread 1.5.
  const items = [
    ...[item('tied:1', [5, 5.5], [3, 1]), item('ref:1', [4], [3])],
    ...[item('tied:2', [1, 3], [2]), item('ref:2', [4], [1, 0])],
    ...[item('tied:3', [3, 4.5], [2, 1]), item('ref:3', [2], [0])],
  ];

  it('has the parts and the score that are worked by hand', () => {
    const figures = tiesFigures(items);
    expect(figures).toMatchObject({ tied_accuracy: 2 / 3, ref_accuracy: 1, correctness_preferred: 1 / 3 });
    expect(figures?.correctness_preferred_hard).toBeCloseTo(1 / 3, 12);
    const margin = (Math.tanh(1 / 0.5 - 1) + Math.tanh(-1 / 2 - 1) + Math.tanh(1 / 1.5 - 1)) / 3;
    expect(figures?.margin).toBeCloseTo(margin, 12);
    expect(figures?.score.value).toBeCloseTo(0.3 * (2 / 3) + 0.3 + 0.2 / 3 + 0.2 / 3 + 0.01 * margin, 12);
    expect(figures?.score.questions).toBe(3);
    const [low, high] = figures?.score.interval ?? [1, 0];
    expect(low).toBeLessThan(figures?.score.value ?? 0);
    expect(high).toBeGreaterThan(figures?.score.value ?? 1);
  });

  it('stands for the subset, and in the mean over subsets', () => {
    const other = { ...read({ prompt: 'p', chosen: 'c', rejected: 'r', subset: 'Math' }), scores: [1, 0] };
    const { by_subset: subsets, subset_mean: mean, ties } = rankedFigures([...items, other]);
    expect(subsets.Ties).toEqual(ties?.score);
    expect(mean).toBeCloseTo(((ties?.score.value ?? 0) + 1) / 2, 12);
  });

  it('needs both questions; equal right answers without a lead count nothing', () => {
    expect(tiesFigures([item('tied:1', [1, 2], [0])])).toBeUndefined();
    const level = tiesFigures([item('tied:1', [1, 1], [1]), item('ref:1', [2], [1])]);
    expect([level?.margin, level?.tied_accuracy, level?.score.value]).toEqual([0, 0, 0.3]);
    expect(rankedFigures([{ ...read({ prompt: 'p', chosen: 'c', rejected: 'r' }), scores: [1, 0] }]).ties).toBeNull();
  });
});
