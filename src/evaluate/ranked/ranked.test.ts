import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { attune } from '../../../tests/support/command-line.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { loadModel, saveModel } from '../../models/index.ts';
import { loadRewardModel, type RewardNotes, type RewardScorer, score } from '../../rewards/index.ts';
import { credit, creditByOrder, isTied } from './credit.ts';
import { rankedFigures, type ScoredItem } from './figures.ts';
import { itemReader } from './items.ts';
import { fitLogistic, sigmoid } from './logistic.ts';
import { evaluateRewardSuite } from './reward-suite.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-ranked-'));
afterAll(() => rmSync(folder, { recursive: true }));

const user = (content: string) => [{ role: 'user' as const, content }];
/** Scores a response by its number of a's. */
const byLetter: RewardScorer = {
  name: 'letters',
  score: async (items) => items.map(({ response }) => response.split('a').length - 1),
};

describe('rows', () => {
  const read = (row: Record<string, unknown>) => itemReader('set')(row);

  it('are pairs, several of each, or the best of k', () => {
    expect(read({ prompt: 'p', chosen: 'c', rejected: 'r', subset: 'math-prm' })).toEqual({
      ...{ prompt: user('p'), responses: ['c', 'r'], right: [true, false], subset: 'math-prm' },
    });
    const transcript = (reply: string) => [...user('p'), { role: 'assistant', content: reply }];
    expect(read({ chosen: transcript('c'), rejected: transcript('r') })).toMatchObject({
      prompt: user('p'),
      responses: ['c', 'r'],
    });
    expect(read({ prompt: 'p', chosen: ['c'], rejected: ['x', 'y', 'z'] })).toMatchObject({
      ...{ responses: ['c', 'x', 'y', 'z'], right: [true, false, false, false] },
    });
    expect(read({ prompt: 'p', responses: ['x', 'c'], best: 1 })).toMatchObject({ right: [false, true] });
    expect(read({ prompt: 'p', responses: ['x', 'c', 'd'], scores: [1, 3, 3] })).toMatchObject({
      right: [false, true, true],
    });
  });

  it.each([
    [{ prompt: 'p', responses: ['x'], best: 0 }, /two or more/],
    [{ prompt: 'p', responses: ['x', 'y'], best: 2 }, /place of one of 2/],
    [{ prompt: 'p', responses: ['x', 'y'], scores: [1, 1] }, /none is the best/],
    [{ prompt: 'p', responses: ['x', 'y'] }, /"best" .*, or "scores"/],
  ])('%j are refused', (row, message) => expect(() => read(row)).toThrow(message));
});

it('gives a tie the share of right ones in it; order matters only where it is asked to', () => {
  const item = { scores: [1, 3, 3, 3], right: [false, true, false, false] };
  expect([credit(item), isTied(item)]).toEqual([1 / 3, true]);
  expect([creditByOrder(item, 'first'), creditByOrder(item, 'last')]).toEqual([1, 0]);
  expect(credit({ scores: [2, 1], right: [true, false] })).toBe(1);
  expect(credit({ scores: [1, 2], right: [true, false] })).toBe(0);
});

describe('logistic regression', () => {
  // Right in 3 of 10 at x = −2, in 8 of 10 at x = 2. With two values of x the fit is exact.
  const x = [...Array(10).fill(-2), ...Array(10).fill(2)];
  const right = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0];

  it('has the numbers that are worked by hand', () => {
    const fit = fitLogistic(x, right);
    const [low, high] = [Math.log(3 / 7), Math.log(8 / 2)];
    expect(fit?.intercept).toBeCloseTo((low + high) / 2, 10);
    expect(fit?.slope).toBeCloseTo((high - low) / 4, 10);
    // Log-odds have the variance 1/(n p (1 − p)). The intercept is the mean of the two.
    const variance = (1 / (10 * 0.3 * 0.7) + 1 / (10 * 0.8 * 0.2)) / 4;
    expect(fit?.interceptError).toBeCloseTo(Math.sqrt(variance), 8);
    expect(fit?.slopeError).toBeCloseTo(Math.sqrt(variance) / 2, 8);
  });

  it('says that there is no fit where length decides all, or does not vary', () => {
    expect(fitLogistic([-2, -1, 1, 2], [0, 0, 1, 1])).toBeUndefined();
    expect(fitLogistic([5, 5, 5], [0, 1, 1])).toBeUndefined();
    expect(fitLogistic([0, 0], [0, 1])).toBeUndefined();
  });
});

describe('figures', () => {
  const item = (subset: string, rightScore: number, wrongScore: number, lengths: [number, number]): ScoredItem => ({
    ...{ prompt: user('p'), subset, scores: [rightScore, wrongScore], right: [true, false] },
    responses: lengths.map((length) => 'x'.repeat(length)),
  });

  it('weigh mathematics as much as code, as RewardBench does', () => {
    const part = (subset: string, won: number, count: number) =>
      Array.from({ length: count }, (_, i) => item(subset, Number(i < won), 0.5, [3, 3 + (i % 2)]));
    const items = [
      ...part('math-prm', 1, 2),
      ...part('hep-go', 3, 4),
      ...part('hep-cpp', 4, 8),
      ...part('donotanswer', 2, 5),
    ];
    const { sections, section_mean: mean, by_subset: subsets, subset_mean: plain, accuracy } = rankedFigures(items);
    // RewardBench gives math-prm the weight of all code items: (12 · 1/2 + 4 · 3/4 + 8 · 1/2)/24
    const reasoning = (12 * 0.5 + 4 * 0.75 + 8 * 0.5) / 24;
    expect(sections.Reasoning?.value).toBeCloseTo(reasoning, 12);
    expect(sections.Safety?.value).toBeCloseTo(0.4, 12);
    expect(Object.keys(sections)).toEqual(['Safety', 'Reasoning']);
    expect(mean).toBeCloseTo((reasoning + 0.4) / 2, 12);
    expect(subsets['hep-go']).toMatchObject({ value: 0.75, questions: 4, by: 'wilson' });
    expect(plain).toBeCloseTo((0.5 + 0.75 + 0.5 + 0.4) / 4, 12);
    expect(accuracy.value).toBeCloseTo(10 / 19, 12);
  });

  it('tell what is left of the accuracy at equal length', () => {
    // Longer by 2: right in 8 of 10; shorter by 2: right in 3 of 10.
    const longer = Array.from({ length: 10 }, (_, i) => item('s', Number(i < 8), 0.5, [5, 3]));
    const shorter = Array.from({ length: 10 }, (_, i) => item('s', Number(i < 3), 0.5, [3, 5]));
    const { length } = rankedFigures([...longer, ...shorter]);
    expect(length.right_longer?.value).toBe(0.8);
    expect(length.right_shorter?.value).toBe(0.3);
    expect(length.right_equal).toBeNull();
    expect(length.longest_is_best).toBe(0.5);
    expect(length.at_equal_length?.accuracy).toBeCloseTo(sigmoid((Math.log(4) + Math.log(3 / 7)) / 2), 10);
    expect(length.at_equal_length?.log_odds_per_100_characters).toBeCloseTo(
      (100 * (Math.log(4) - Math.log(3 / 7))) / 4,
      8,
    );
  });

  it('show what the order of the responses decides', () => {
    const four = (best: number, scores: number[]): ScoredItem => ({
      ...{ prompt: user('p'), responses: ['a', 'b', 'c', 'd'], scores, right: [0, 1, 2, 3].map((i) => i === best) },
    });
    const { position, chance, accuracy } = rankedFigures([
      four(0, [2, 2, 1, 0]),
      four(3, [0, 1, 2, 3]),
      four(3, [5, 1, 2, 5]),
    ]);
    expect(position).toMatchObject({ ties: 2, first_of_equals: 2 / 3, last_of_equals: 2 / 3, ties_wrong: 1 / 3 });
    expect([position.by_place[1]?.value, position.by_place[4]?.value]).toEqual([0.5, 0.75]);
    expect([chance, accuracy.value]).toEqual([0.25, 2 / 3]);
  });
});

it('scores anything that scores, on rows given', async () => {
  const suite = [
    { prompt: 'p', responses: ['b', 'aa', 'a'], best: 1 },
    { prompt: 'p', responses: ['aaa', 'b', 'c'], best: 2 },
  ];
  const results = await evaluateRewardSuite({ scorer: byLetter, suite });
  expect(results).toMatchObject({ model: 'letters', items: 2, responses: 6, accuracy: { value: 0.5 } });
  expect(results.scored[0]?.scores).toEqual([0, 2, 1]);
  const broken: RewardScorer = { name: 'broken', score: async (items) => items.map(() => Number.NaN) };
  await expect(evaluateRewardSuite({ scorer: broken, suite })).rejects.toThrow(/not numbers/);
});

it('is a command; its accuracy is that of the public score function', async () => {
  const base = await tinyModel(join(folder, 'rm'));
  using model = await loadModel(base);
  model.addHead('reward', 1);
  const reading = { stripThinking: false, format: 'auto', stepSeparator: '\n', maxLength: 256 } as const;
  model.notes.reward = { type: 'preference', step: 1, mean: 0, std: 1, count: 1, ...reading } satisfies RewardNotes;
  saveModel(model, base);
  const rows = Array.from({ length: 30 }, (_, i) => ({
    ...{ prompt: `What is ${i} + 1?`, chosen: `The answer is ${i + 1}.`, rejected: `${'no '.repeat(1 + (i % 9))}${i}` },
    subset: i % 3 === 0 ? 'hep-go' : 'math-prm',
  }));
  const file = join(folder, 'pairs.jsonl');
  writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const out = join(folder, 'out');
  const run = ['evaluate', 'reward', '--checkpoint', base, '--suite', file, '--output-dir', out];
  const { code, out: told } = await attune(...run);
  expect(code).toBe(0);
  expect(told).toMatch(/By section|By subset/);
  using scorer = await loadRewardModel(base);
  let right = 0;
  for (const { prompt, chosen, rejected } of rows) {
    const [better = 0, worse = 0] = await score({ model: scorer, prompt, responses: [chosen, rejected] });
    right += Number(better > worse);
  }
  const saved = JSON.parse(readFileSync(join(out, 'reward_suite.json'), 'utf8'));
  expect(saved.accuracy.value).toBeCloseTo(right / rows.length, 12);
  expect(saved).toMatchObject({ quant_type: null, precision: 'exact', truncated: 0 });
  const quantised = await evaluateRewardSuite({ scorer: base, suite: rows, quantType: 'int8' });
  expect(quantised).toMatchObject({ quant_type: 'int8', precision: 'exact' });
  const long = { prompt: 'Well?', chosen: 'no '.repeat(400), rejected: 'no' };
  expect((await evaluateRewardSuite({ scorer: base, suite: [...rows, long] })).truncated).toBe(1);
  expect(readFileSync(join(out, 'reward_suite_items.jsonl'), 'utf8').trim().split('\n')).toHaveLength(30);
  expect(readFileSync(join(out, 'reward_suite.png')).subarray(1, 4).toString()).toBe('PNG');
  const refused = await attune(...run, '--drop-ties');
  expect([refused.code, refused.err]).toEqual([
    2,
    expect.stringContaining('--drop-ties: has no effect here: a ranked set'),
  ]);
  const both = await attune(...run, '--task', 'gcd:1');
  expect([both.code, both.err]).toEqual([2, expect.stringContaining('--suite for a ranked set')]);
});
