import { describe, expect, it } from 'vitest';
import { askedFor, filtersSet, nearestStep } from './filters.ts';

describe('filters', () => {
  it('pass on what is set, and nothing of what is open', () =>
    expect(askedFor({ q: 'sum of', minReward: '0.5', open: '12', view: 'tokens', correct: 'no', eval: '1' })).toEqual({
      q: 'sum of',
      minReward: '0.5',
      correct: '0',
      eval: true,
    }));

  it('let a single step stand above a range', () =>
    expect(askedFor({ step: '4', from: '1', to: '9' })).toEqual({ step: '4' }));

  it('sort only by what the server knows', () => {
    expect(askedFor({ sort: 'reward', dir: 'asc' })).toEqual({ sort: 'reward', dir: 'asc' });
    expect(askedFor({ sort: 'drop table' })).toEqual({});
  });

  it('are counted for their button', () => expect(filtersSet({ q: 'x', step: '1', ending: 'cut', to: '3' })).toBe(2));

  it('find the step nearest to the one picked', () => {
    expect([0, 7, 8, 99].map((step) => nearestStep([5, 10, 20], step))).toEqual([5, 5, 10, 20]);
    expect(nearestStep([], 3)).toBeUndefined();
  });
});
