import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { loadModel } from '../models/index.ts';
import { type Decisions, RewardModelScorer, type RewardNotes, type RewardType } from '../rewards/index.ts';
import { rewardHeads } from '../rewards/reward-notes.ts';
import { task } from '../tasks/index.ts';
import { Tokenizer } from '../text/index.ts';
import { evaluateReward, type RewardEvaluation, summary } from './reward.ts';
import { describeReward, rewardCharts, writeRewardEvaluation } from './reward-report.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-evaluate-reward-'));
afterAll(() => rmSync(folder, { recursive: true }));

async function scorerOf(type: RewardType): Promise<RewardModelScorer> {
  const base = await tinyModel(join(folder, type));
  const model = await loadModel(base);
  const { kind, outputs } = rewardHeads[type];
  model.addHead(kind, outputs);
  const reading = { stripThinking: false, format: 'auto', stepSeparator: '\n', maxLength: 512 } as const;
  model.notes.reward = { type, step: 1, mean: 0, std: 1, count: 1, ...reading } satisfies RewardNotes;
  return new RewardModelScorer(model, await Tokenizer.load(base));
}

it.each(['preference', 'outcome', 'process'] as const)('reports on generated problems: %s', async (type) => {
  using scorer = await scorerOf(type);
  const report = await evaluateReward({ checkpoint: scorer, tasks: 'chain_sum:1,gcd:1', maxSamples: 24, seed: 3 });
  expect(report.examples).toBe(24);
  expect(Object.keys(report.by_source)).toEqual(['chain_sum', 'gcd']);
  expect(report.verifier?.responses).toBe(type === 'preference' ? 48 : 24);
  expect(report.accuracy).toBeGreaterThanOrEqual(report.accuracy_interval[0]);
  // An outcome model scores four solutions of each problem, so that they can be ranked.
  if (type === 'outcome') expect(report.ranking?.best_of_n).toHaveProperty('4');
  await writeRewardEvaluation(join(folder, 'report', type), report, report.decided);
  const saved = JSON.parse(readFileSync(join(folder, 'report', type, 'reward_evaluation.json'), 'utf8'));
  expect(saved.calibration.ece).toBe(report.calibration.ece);
  expect(existsSync(join(folder, 'report', type, 'reward_evaluation.png'))).toBe(true);
  expect(describeReward(report)).toContain('Gold verifier');
});

it.each([
  ['outcome', ['right', 'wrong']],
  ['process', ['step labelled 1', 'step labelled -1']],
] as const)('draws what is right in one colour, whichever came first: %s', async (type, labels) => {
  using scorer = await scorerOf(type);
  const report = await evaluateReward({ checkpoint: scorer, tasks: 'gcd:1', maxSamples: 12, seed: 3 });
  const isRight = ({ responses: [each] }: Decisions['decisions'][number]) => Number(each?.label === labels[0]);
  const wrongFirst = report.decided.decisions.toSorted((a, b) => isRight(a) - isRight(b));
  const charts = rewardCharts(report, { ...report.decided, decisions: wrongFirst });
  const legend = (name: string) => charts.find(({ title }) => title === name)?.legend;
  expect(legend('Scores')?.map(({ name }) => name)).toEqual(labels);
  const colours = (name: string) => legend(name)?.map(({ color }) => color);
  expect(colours('Scores')).toEqual(colours('Margins (above 0: right)'));
});

it('counts the responses that it could not read whole', async () => {
  using scorer = await scorerOf('preference');
  const dataset = ['no', 'no '.repeat(600)].map((rejected) => ({ prompt: 'Is it so?', chosen: 'yes', rejected }));
  const report = await evaluateReward({ checkpoint: scorer, dataset });
  expect(report.truncated).toBe(1);
  expect(describeReward(report)).toContain('truncated: 1 response has more tokens');
});

it('compares the steps that it read with their own labels where the first ones were cut away', async () => {
  using scorer = await scorerOf('process');
  const completions = ['so', 'no '.repeat(600), 'yes', 'no'];
  const dataset = [{ prompt: 'Is it so?', completions, labels: [1, -1, 1, 0] }];
  const report = await evaluateReward({ checkpoint: scorer, dataset });
  expect(report.truncated).toBe(1);
  // The end of the long step is read, and the step before it is not.
  const read = report.decided.decisions.map(({ responses: [step] }) => [step?.text.length, step?.label]);
  expect(read).toEqual([
    [1800, 'step labelled -1'],
    [3, 'step labelled 1'],
    [2, 'step labelled 0'],
  ]);
  expect(report.decided.decisions.every(({ margin }) => Number.isFinite(margin))).toBe(true);
});

it('says that there were no pairs of a kind, not that it was right in none', () => {
  const decided: Decisions = {
    decisions: [{ margin: 1, length: -2, prompt: 'p', responses: [] }],
    ...{ forecasts: [{ probability: 0.75, happened: true }], scores: [], groups: [] },
  };
  const report = {
    ...summary('preference', decided, new Map()),
    type: 'preference',
    examples: 1,
    model: 'm',
    dataset: 'd',
    left_out: {},
    by_source: {},
  };
  const text = describeReward(report as unknown as RewardEvaluation);
  expect(text).toMatch(/Chosen longer +there were none/);
  expect(text).toMatch(/Chosen shorter +right in 100\.0 %/);
});

it('measures agreement with the verifier, and the baselines, on numbers worked by hand', () => {
  const example = task('chain_sum').generate(1, 1);
  const right = `<answer>${example.answer}</answer>`;
  const scored = (response: string, score: number) => ({ prompt: example.prompt, response, score });
  const decided: Decisions = {
    decisions: [
      { margin: 1, length: 2, prompt: 'p', responses: [] },
      { margin: -1, length: 3, prompt: 'p', responses: [] },
      { margin: 2, length: 0, prompt: 'p', responses: [] },
      { margin: 2, length: -1, prompt: 'p', responses: [] },
    ],
    forecasts: [{ probability: 0.75, happened: true }],
    scores: [scored(right, 2), scored('<answer>none</answer>', 1), scored('<answer>no</answer>', 3)],
    groups: [],
  };
  const report = summary('preference', decided, new Map([[example.prompt, example]]));
  expect(report.accuracy).toBe(0.75);
  // of four: longer in two, equally long in one
  expect(report.baseline_accuracy).toBe(2.5 / 4);
  expect(report.calibration.ece).toBeCloseTo(0.25, 12);
  // the right one beats one of the two wrong ones
  expect(report.verifier).toMatchObject({ responses: 3, pairwise_agreement: 0.5, auc: 0.5, score_correlation: 0 });
  expect(report.score).toEqual({ mean: 2, std: 1 });
});

it('compares steps with always giving the commonest of the three labels', () => {
  const step = (label: number, margin: number) => ({
    ...{ margin, length: 1, prompt: 'p' },
    responses: [{ label: `step labelled ${label}`, text: 't', score: 0.5 }],
  });
  const decided: Decisions = {
    decisions: [step(1, 1), step(1, 1), step(0, 1), step(-1, -1), step(-1, 1)],
    forecasts: [{ probability: 0.75, happened: true }],
    ...{ scores: [], groups: [] },
  };
  const report = summary('process', decided);
  expect(report.accuracy).toBe(0.8);
  // two of five; three of five are "not 1", but no single label covers those
  expect(report.baseline_accuracy).toBe(0.4);
  expect(report.balanced_accuracy).toBeCloseTo((1 + 1 + 0.5) / 3, 12);
});

it('tells the best of n only where a tenth of the problems have that many responses', () => {
  const group = (responses: number) =>
    Array.from({ length: responses }, (_, i) => ({ score: i, correct: i % 2 === 1 }));
  const groups = [...Array.from({ length: 20 }, () => group(2)), group(4)];
  const { ranking } = summary('outcome', { decisions: [], forecasts: [], scores: [], groups });
  expect(Object.keys(ranking?.best_of_n ?? {})).toEqual(['1', '2']);
  // in the group of four, the better-scored of two is right in four of the six choices
  expect(ranking?.best_of_n[2]).toBeCloseTo((20 + 4 / 6) / 21, 12);
});

it('tells nothing of picking the best where all are wrong', () => {
  const groups = [[1, 2, 3, 4].map((score) => ({ score, correct: false }))];
  expect(summary('process', { decisions: [], forecasts: [], scores: [], groups }).ranking).toBeUndefined();
});
