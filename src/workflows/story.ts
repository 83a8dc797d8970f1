/**
 * Post-training from start to end in a few minutes on a laptop's CPU: makes data, trains a reward model on it, runs
 * GRPO against that reward model and against the verifier, and compares both by the verifier on held-out problems. It
 * reads from top to bottom, and every part is one call of the library.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { meanOf } from '../algorithms/index.ts';
import { AttuneError } from '../errors.ts';
import { type EvaluatedResponse, evaluatePolicy, type PolicyEvaluation } from '../evaluate/policy.ts';
import { makeFolder } from '../folder.ts';
import { loadModel } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import { loadRewardModel, type RewardScorer } from '../rewards/index.ts';
import { PromptWriter } from '../rollouts/prompts.ts';
import { taskEvalPrompts } from '../rollouts/task-prompts.ts';
import {
  type Chart,
  grid,
  type LineOptions,
  lineChart,
  type MetricRow,
  openRun,
  Report,
  toPng,
} from '../runs/index.ts';
import { preferenceRows } from '../tasks/index.ts';
import { Tokenizer } from '../text/index.ts';
import type { TrainerOptions, TrainingRun } from '../trainers/loop/training-run.ts';
import { trainPolicy } from '../trainers/policy/policy.ts';
import { addSignals } from '../trainers/policy/report.ts';
import { trainReward } from '../trainers/reward/reward.ts';

export interface StoryOptions {
  /** The model to start from. */
  model: string;
  /** The output folder. */
  folder: string;
  tasks: string;
  /** Minutes for everything. Each training ends when its share is used up. */
  minutes: number;
  pairs?: number;
  heldOut?: number;
  maxNewTokens?: number;
  seed?: number;
  /** Commands to try next, with what each does. Shown at the end of the report. */
  next?: readonly (readonly [command: string, what: string])[];
  print: (line: string) => void;
  progress?: Progress;
  signal?: AbortSignal;
}

export interface Story {
  /** Share of held-out problems solved, according to the verifier. */
  accuracy: { start: number; rewardModel: number; verifier: number };
  /** The reward model's mean score of the same responses. */
  proxyReward: { start: number; rewardModel: number; verifier: number };
  /** Share of held-out pairs that the reward model ranks correctly: with worked solutions, and with bare answers. */
  rewardModelAccuracy: { worked: number; bare: number };
  report: string;
}

/** Share of the time for each training; the rest is for evaluation and the report. */
const shares = { rewardModel: 0.2, againstRewardModel: 0.3, againstVerifier: 0.3 };

export async function tellStory(options: StoryOptions): Promise<Story> {
  const { model, folder, tasks, seed = 7, pairs: count = 6000, heldOut = 120, maxNewTokens = 64, print } = options;
  const seconds = (share: number) => 60 * options.minutes * share;
  makeFolder(folder);
  const runs = { reportTo: [], logSteps: 1, saveSteps: -1, lrSchedule: 'constant' as const, seed, model };

  print(
    '1. Data. Each pair is a right and a wrong answer to one problem, worked out or not; slips were made on purpose.',
  );
  const pairs = (['think', 'answer'] as const).flatMap((style, i) => [
    ...preferenceRows({ tasks, seed: seed + i, count: count / 2, part: 'train', style }),
  ]);
  const dataset = join(folder, 'pairs.jsonl');
  writeFileSync(dataset, pairs.map((pair) => `${JSON.stringify(pair)}\n`).join(''));
  const [shown] = pairs;
  if (shown) print(`   ${shown.prompt}\n   right  ${oneLine(shown.chosen)}\n   wrong  ${oneLine(shown.rejected)}`);

  print('\n2. A reward model learns from the pairs which answer people would prefer.');
  const judgeRun = await within(seconds(shares.rewardModel), options, (limits) =>
    trainReward(
      {
        ...runs,
        type: 'preference',
        dataset,
        outputDir: join(folder, 'reward-model'),
        runName: 'run',
        batchSize: 32,
        gradAccum: 1,
        lr: 1e-3,
        warmupSteps: 10,
        maxSteps: 180,
        evalSteps: -1,
        validationSplit: 0,
        stripThinking: false,
        maxLength: 512,
      },
      { ...limits, cache: false },
    ).open(),
  );
  const scorer = await loadRewardModel(judgeRun.checkpoint);
  const rewardModelAccuracy = {
    worked: await rankedRightly(scorer, { tasks, seed, count: heldOut, style: 'think' }),
    bare: await rankedRightly(scorer, { tasks, seed, count: heldOut, style: 'answer' }),
  };
  print(`   it ranks ${ranked(rewardModelAccuracy)}`);

  const judge = await openJudge({ model, tasks, seed, heldOut, maxNewTokens, scorer });
  const start = await judge(model);
  print(
    `\n3. The start: ${percent(start.summary.accuracy ?? 0)} of ${start.summary.prompts} held-out problems are right.`,
  );

  const policy = (runName: string, share: number, more: object) =>
    within(seconds(share), options, (limits) =>
      trainPolicy(
        {
          ...runs,
          task: tasks,
          algorithm: 'grpo',
          outputDir: join(folder, 'policy'),
          runName,
          maxNewTokens,
          batchSize: 8,
          gradAccum: 1,
          groupSize: 8,
          lr: 2e-4,
          warmupSteps: 5,
          topP: 1,
          maxSteps: 60,
          evalSteps: -1,
          ...more,
        },
        { ...limits, run: { curves: false } },
      ).open(),
    );
  print('\n4. GRPO against the reward model: the policy writes, the reward model pays.');
  const proxy = await policy('reward-model', shares.againstRewardModel, {
    rewardModelPath: judgeRun.checkpoint,
    klCoef: 0.05,
  });
  const afterProxy = await judge(proxy.checkpoint);
  print(`   ${outcome(start, afterProxy)}\n   ${course(proxy.rows)}`);

  print('\n5. GRPO against the verifier: only right answers are paid.');
  const gold = await policy('verifier', shares.againstVerifier, { klCoef: 0 });
  const afterGold = await judge(gold.checkpoint);
  print(`   ${outcome(start, afterGold)}`);
  scorer.dispose();

  const report = join(folder, 'report.html');
  const chapters = { start, afterProxy, afterGold, judgeRun, proxy, gold, rewardModelAccuracy };
  writeFileSync(report, storyReport(options, chapters).html());
  writeFileSync(join(folder, 'story.png'), await toPng(grid(curvesOf(chapters).slice(1, 3), { columns: 2 })));
  return {
    accuracy: pick([start, afterProxy, afterGold], ({ summary }) => summary.accuracy ?? 0),
    proxyReward: pick([start, afterProxy, afterGold], ({ summary }) => summary.reward.mean),
    rewardModelAccuracy,
    report,
  };
}

interface Chapter {
  rows: MetricRow[];
  checkpoint: string;
}

/** The least number of steps, whatever the time. */
const fewestSteps = 2;

/** Trains until the end or until its time is up. A stopped run saves a checkpoint. */
async function within(
  seconds: number,
  { signal, progress }: StoryOptions,
  start: (limits: Pick<TrainerOptions, 'signal' | 'progress'>) => Promise<TrainingRun>,
): Promise<Chapter> {
  const stop = new AbortController();
  const both = signal === undefined ? stop.signal : AbortSignal.any([signal, stop.signal]);
  using run = await start({ signal: both, progress });
  const started = performance.now();
  for await (const { step } of run) {
    if (step >= fewestSteps && performance.now() - started > 1000 * seconds) stop.abort();
  }
  if (signal?.aborted) throw new AttuneError('The demo was stopped.');
  return { rows: openRun(run.folder).metrics(), checkpoint: run.result?.checkpoint ?? run.folder };
}

/** Share of held-out pairs whose right solution gets the higher score. */
async function rankedRightly(
  scorer: RewardScorer,
  pairsOf: { tasks: string; seed: number; count: number; style: 'think' | 'answer' },
): Promise<number> {
  const pairs = [...preferenceRows({ ...pairsOf, part: 'test' })];
  const scores = await scorer.score(
    pairs.flatMap(({ prompt, chosen, rejected }) => [chosen, rejected].map((response) => ({ prompt, response }))),
  );
  return pairs.filter((_, i) => (scores[2 * i] as number) > (scores[2 * i + 1] as number)).length / pairs.length;
}

const ranked = ({ worked, bare }: Story['rewardModelAccuracy']) =>
  `${percent(worked)} of held-out pairs of worked solutions rightly, ${percent(bare)} of those of bare answers`;

interface JudgeOptions {
  model: string;
  tasks: string;
  seed: number;
  heldOut: number;
  maxNewTokens: number;
  scorer: RewardScorer;
}

/**
 * Evaluates all models alike: greedy responses to held-out problems, scored by the verifier and by the reward model.
 */
async function openJudge(options: JudgeOptions): Promise<(model: string) => Promise<PolicyEvaluation>> {
  const { tasks, seed, heldOut: count, maxNewTokens, scorer } = options;
  const tokenizer = await Tokenizer.load(options.model);
  const prompts = taskEvalPrompts(new PromptWriter(tokenizer), { tasks, seed, count });
  return async (folder) => {
    using model = await loadModel(folder, { dtype: 'float32' });
    return await evaluatePolicy({ model, tokenizer, prompts, scorer, samples: 0, maxNewTokens, seed });
  };
}

interface Chapters {
  start: PolicyEvaluation;
  afterProxy: PolicyEvaluation;
  afterGold: PolicyEvaluation;
  judgeRun: Chapter;
  proxy: Chapter;
  gold: Chapter;
  rewardModelAccuracy: Story['rewardModelAccuracy'];
}

function storyReport(options: StoryOptions, chapters: Chapters): Report {
  const { start, afterProxy, afterGold, gold, rewardModelAccuracy } = chapters;
  const report = new Report('Post-training, the whole story', `${options.model}, ${options.tasks}`);
  const row = (name: string, { summary }: PolicyEvaluation) => [
    name,
    percent(summary.accuracy ?? 0),
    summary.reward.mean,
    summary.length_tokens.mean,
    percent(summary.ended),
  ];
  report
    .section('What came of it')
    .paragraph(
      `Judged on ${start.summary.prompts} problems that nobody trained on. The verifier says what is right; the reward model, ` +
        `which ranks ${ranked(rewardModelAccuracy)}, only what it has learnt to like.`,
    )
    .table(
      ['policy', 'right (verifier)', 'reward model’s score', 'tokens', 'ended by itself'],
      [
        row('start', start),
        row('GRPO against the reward model', afterProxy),
        row('GRPO against the verifier', afterGold),
      ],
    );
  report.section('Curves').charts(curvesOf(chapters));
  report.note(
    'Compare “what the reward model pays” with “what is right”: a reward model is a stand-in. Where the first rises and the ' +
      'second does not, the policy has learnt to please the stand-in.',
  );
  addSignals(report, gold.rows);
  report.section('The same problems before and after').samples(
    start.prompts.slice(0, 10).map(({ prompt, greedy }, i) => ({
      prompt,
      responses: [
        labelled('start', greedy),
        ...[afterProxy, afterGold].flatMap((evaluation, k) => {
          const answer = evaluation.prompts[i]?.greedy;
          return answer === undefined
            ? []
            : [labelled(k === 0 ? 'after the reward model' : 'after the verifier', answer)];
        }),
      ],
    })),
  );
  report.section('Where to go next');
  for (const [command, what] of options.next ?? []) report.paragraph(`${command}: ${what}`);
  return report;
}

function curvesOf({ judgeRun, proxy, gold }: Chapters): Chart[] {
  const series = (name: string, rows: readonly MetricRow[], metric: string) => {
    const found = rows.filter((each) => each[metric] !== undefined);
    return { name, x: found.map(({ step }) => step), y: found.map((each) => each[metric] as number) };
  };
  // The first two panels are compared, so they end at the same step.
  const xMax = Math.max(...[...proxy.rows, ...gold.rows].map(({ step }) => step));
  const both = (title: string, metric: string, share = false) =>
    lineChart({
      title,
      xLabel: 'step',
      xMax,
      share,
      series: [
        series('against the reward model', proxy.rows, metric),
        series('against the verifier', gold.rows, metric),
      ],
    });
  const one = (title: string, name: string, rows: readonly MetricRow[], metric: string, more: Partial<LineOptions>) =>
    lineChart({ title, xLabel: 'step', series: [series(name, rows, metric)], ...more });
  return [
    one('reward model: accuracy', 'training pairs', judgeRun.rows, 'train/accuracy', { share: true }),
    one('what the reward model pays', 'reward model', proxy.rows, 'train/score', { xMax }),
    both('what is right (verifier)', 'train/accuracy', true),
    both('tokens per answer', 'train/length_mean'),
    both('entropy', 'train/entropy'),
    both('share of groups without spread', 'train/zero_spread', true),
  ];
}

/** Accuracy during training: the reward model's score may still rise after accuracy has stopped improving. */
function course(rows: readonly MetricRow[]): string {
  const right = rows.flatMap(({ 'train/accuracy': accuracy }) => (accuracy === undefined ? [] : [accuracy]));
  const width = Math.min(6, right.length);
  const means = right.slice(width - 1).map((_, i) => meanOf(right.slice(i, i + width)));
  const best = means.indexOf(Math.max(...means));
  const first = percent(means[0] ?? 0);
  const last = percent(means.at(-1) ?? 0);
  return `what it wrote in training was right in ${first} of cases at first, ${percent(means[best] ?? 0)} around step ${best + width}, ${last} at the end`;
}

const labelled = (label: string, { text, reward, correct }: EvaluatedResponse) => ({
  label: `${label}: ${correct ? 'right' : 'wrong'}`,
  text,
  values: { score: reward },
});

function outcome(before: PolicyEvaluation, after: PolicyEvaluation): string {
  const of = ({ summary }: PolicyEvaluation) =>
    `${percent(summary.accuracy ?? 0)} right, reward model ${summary.reward.mean.toFixed(2)}`;
  return `before: ${of(before)}; after: ${of(after)}`;
}

function pick<T>([start, rewardModel, verifier]: [T, T, T], of: (value: T) => number): Story['accuracy'] {
  return { start: of(start), rewardModel: of(rewardModel), verifier: of(verifier) };
}

const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
const oneLine = (text: string) => text.replace(/\s+/g, ' ').trim();
