import { describe, expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import { type ResponseAdvantage, responseAdvantages, zeroSpreadShare } from './advantages.ts';

const rewards = [1, 0, 0.5, 0.1, 0.1, 0.1, 3, -1, 2];
const groups = [7, 7, 7, 8, 8, 8, 9, 9, 9];
const close = (actual: Float64Array, wanted: number[]) => {
  expect(actual.length).toBe(wanted.length);
  wanted.forEach((value, i) => {
    expect(actual[i]).toBeCloseTo(value, 7);
  });
};

describe('response advantages', () => {
  it('none is the reward', () => close(responseAdvantages('none', rewards, groups), rewards));

  it('batch-mean subtracts the mean of the step', () => {
    const mean = 5.8 / 9;
    close(
      responseAdvantages('batch-mean', rewards, groups),
      rewards.map((reward) => reward - mean),
    );
  });

  it('leave-one-out subtracts the mean of the others', () => {
    close(responseAdvantages('leave-one-out', rewards, groups), [0.75, -0.75, 0, 0, 0, 0, 2.5, -3.5, 1]);
  });

  it('group-z standardises with the unbiased spread', () => {
    // group 7: mean .5, std .5; group 9: mean 4/3, variance (25 + 49 + 4)/9/2
    const std = Math.sqrt(78 / 18);
    const last = [5 / 3, -7 / 3, 2 / 3].map((value) => value / std);
    close(responseAdvantages('group-z', rewards, groups), [1, -1, 0, 0, 0, 0, ...last]);
  });

  it('group-centred subtracts the group’s mean', () => {
    close(responseAdvantages('group-centred', rewards, groups), [0.5, -0.5, 0, 0, 0, 0, 5 / 3, -7 / 3, 2 / 3]);
  });

  it('max-rl divides by the pass rate', () => {
    const binary = [1, 0, 0, 0, 0, 0, 1, 1, 1];
    close(responseAdvantages('max-rl', binary, groups), [2, -1, -1, 0, 0, 0, 0, 0, 0]);
    expect(() => responseAdvantages('max-rl', rewards, groups)).toThrow(UserError);
  });

  it('equal rewards give exactly 0, also where their mean rounds', () => {
    const kinds: ResponseAdvantage[] = ['batch-mean', 'leave-one-out', 'group-z', 'group-centred'];
    for (const kind of kinds) {
      for (const value of [0.1, 1 / 3, -7.7, 1e-9, 1e9 + 0.1]) {
        const made = responseAdvantages(kind, new Array(7).fill(value), new Array(7).fill(0));
        expect(Array.from(made), `${kind} of ${value}`).toEqual(new Array(7).fill(0));
      }
    }
    for (const bit of [0, 1])
      expect(Array.from(responseAdvantages('max-rl', [bit, bit, bit], [0, 0, 0]))).toEqual([0, 0, 0]);
  });

  it('groups need not lie together or be of one size', () => {
    close(responseAdvantages('group-centred', [1, 10, 3, 20, 5], [0, 1, 0, 1, 0]), [-2, -5, 0, 5, 2]);
  });

  it('a group of one is 0 by itself, and nothing that leave-one-out can do', () => {
    expect(Array.from(responseAdvantages('group-z', [5], [0]))).toEqual([0]);
    expect(() => responseAdvantages('leave-one-out', [5], [0])).toThrow(/group size of 2/);
  });

  it('counts the groups without spread', () => {
    expect(zeroSpreadShare(rewards, groups)).toBeCloseTo(1 / 3, 15);
    expect(zeroSpreadShare([1, 2], [0, 0])).toBe(0);
  });
});

it('refuses a kind that there is not, and groups that are no fit', () => {
  expect(() => responseAdvantages('group-y' as ResponseAdvantage, [1], [0])).toThrow(
    /"group-y". Did you mean "group-z"/,
  );
  expect(() => responseAdvantages('group-z', [1, 2], [0])).toThrow(/2 rewards and 1 groups/);
});
