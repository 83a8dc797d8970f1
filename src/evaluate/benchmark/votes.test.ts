import { expect, it } from 'vitest';
import { bestChoices } from './choices.ts';
import { majorityAtK, reportedKs, voteScores } from './votes.ts';

const vote = (answer: string | undefined, right = answer === 'r') => ({ answer, right });

/** All choices of k out of n indices. */
function* subsets(n: number, k: number, from = 0): Generator<number[]> {
  if (k === 0) yield [];
  else for (let i = from; i <= n - k; i++) for (const rest of subsets(n, k - 1, i + 1)) yield [i, ...rest];
}

it('pass@k is the share of choices of k samples that hold a right one, counted one by one', () => {
  const votes = ['r', 'w', 'w', 'r', 'x', 'w', 'y'].map((answer) => vote(answer));
  const scores = voteScores('strict', votes, 5);
  for (const k of [1, 2, 4, 5]) {
    const all = [...subsets(votes.length, k)];
    const passed = all.filter((places) => places.some((i) => votes[i]?.right)).length;
    expect(scores[`strict_pass@${k}`]).toBeCloseTo(passed / all.length, 12);
  }
  expect(Object.keys(scores)).toEqual([
    ...['strict_pass@1', 'strict_pass@2', 'strict_maj@2', 'strict_pass@4', 'strict_maj@4'],
    ...['strict_pass@5', 'strict_maj@5'],
  ]);
});

it('the majority of the first k decides; equals share, and no answer is no vote', () => {
  const votes = [vote('w'), vote('r'), vote('r'), vote(undefined), vote('w'), vote('w')];
  expect(majorityAtK(votes, 2)).toBe(0.5);
  expect(majorityAtK(votes, 3)).toBe(1);
  expect(majorityAtK(votes, 5)).toBe(0.5);
  expect(majorityAtK(votes, 6)).toBe(0);
  expect(majorityAtK([vote(undefined), vote(undefined)], 2)).toBe(0);
});

it('reports powers of two, and k', () => {
  expect(reportedKs(1)).toEqual([1]);
  expect(reportedKs(6)).toEqual([1, 2, 4, 6]);
  expect(reportedKs(8)).toEqual([1, 2, 4, 8]);
});

it('chooses by the sum of log-probs, by characters and by bytes', () => {
  // −4 and −5; −4/2 and −5/4
  expect(bestChoices([-4, -5], ['ab', 'abcd'])).toEqual({ plain: 0, perCharacter: 1, perByte: 1 });
  // −6/3 and −7/4 by characters; −6/6 and −7/4 by bytes
  expect(bestChoices([-6, -7], ['ééé', 'abcd'])).toEqual({ plain: 0, perCharacter: 1, perByte: 0 });
  // ties go to the first
  expect(bestChoices([-3, -3, -3], ['a', 'b', 'c'])).toEqual({ plain: 0, perCharacter: 0, perByte: 0 });
});
