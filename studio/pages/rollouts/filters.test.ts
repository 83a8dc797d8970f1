import { describe, expect, it } from 'vitest';
import { askedFor, filtersSet, nearestStep, nothingWords, runToShow } from './filters.ts';

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

describe('a run', () => {
  it('that has no responses at all blames no filter', () => {
    expect(nothingWords({ open: '3' }, false)).toBe('This run stored no responses.');
    expect(nothingWords({ eval: '1' }, true)).toBe('This run has not stored held-out responses yet.');
    expect(nothingWords({ q: 'x' }, false)).toBe('No response fits the filters.');
    expect(nothingWords({ step: '4', eval: '1' }, true)).toBe('No response fits the filters.');
  });

  it('is shown unasked if it was written last and took a step', () => {
    const run = (name: string, updated: number, step: number, hasRollouts = true) => ({
      ...{ name, updated, step, hasRollouts },
    });
    const runs = [run('failed', 9, 0), run('older', 3, 5), run('newest', 7, 2), run('without', 8, 2, false)];
    expect(runToShow(runs)?.name).toBe('newest');
    expect(runToShow(runs.slice(0, 1))?.name).toBe('failed');
    expect(runToShow([])).toBeUndefined();
  });
});
