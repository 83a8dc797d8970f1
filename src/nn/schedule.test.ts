import { expect, it } from 'vitest';
import { type ScheduleOptions, scheduleFactor } from './schedule.ts';

const factors = (options: ScheduleOptions, steps: number[]) => steps.map((step) => scheduleFactor(step, options));

it('constant: warm-up from 1/W, then 1 for ever', () => {
  expect(factors({ kind: 'constant', totalSteps: 10, warmupSteps: 4 }, [0, 1, 3, 4, 9, 50])).toEqual([
    0.25, 0.5, 1, 1, 1, 1,
  ]);
  expect(factors({ kind: 'constant', totalSteps: 10 }, [0, 9])).toEqual([1, 1]);
});

it('linear: to 0 at the end, and no further', () => {
  expect(factors({ kind: 'linear', totalSteps: 10, warmupSteps: 2 }, [0, 1, 2, 6, 10, 99])).toEqual([
    0.5, 1, 1, 0.5, 0, 0,
  ]);
  expect(factors({ kind: 'linear', totalSteps: 4, floor: 0.25 }, [0, 2, 4])).toEqual([1, 0.625, 0.25]);
});

it('cosine: half a wave', () => {
  const [start, third, half, end] = factors({ kind: 'cosine', totalSteps: 6 }, [0, 2, 3, 6]);
  expect(start).toBe(1);
  expect(third).toBeCloseTo(0.75, 12); // (1 + cos 60°)/2
  expect(half).toBeCloseTo(0.5, 12);
  expect(end).toBeCloseTo(0, 12);
  expect(scheduleFactor(6, { kind: 'cosine', totalSteps: 6, floor: 0.1 })).toBeCloseTo(0.1, 12);
});

it('a warm-up as long as the whole, and one that is longer', () => {
  expect(factors({ kind: 'cosine', totalSteps: 2, warmupSteps: 2 }, [0, 1])).toEqual([0.5, 1]);
  expect(factors({ kind: 'linear', totalSteps: 2, warmupSteps: 4 }, [0, 1])).toEqual([0.25, 0.5]);
});

it('refuses what is impossible', () => {
  expect(() => scheduleFactor(0, { kind: 'linear', totalSteps: 0 })).toThrow(/0 steps/);
  expect(() => scheduleFactor(0, { kind: 'linear', totalSteps: 5, warmupSteps: -1 })).toThrow(/-1 of warm-up/);
});

it('refuses a kind that there is not, and suggests one', () => {
  expect(() => scheduleFactor(0, { kind: 'cosin' as never, totalSteps: 5 })).toThrow(/"cosin". Did you mean "cosine"/);
});
