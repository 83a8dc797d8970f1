/**
 * Evaluates a reward model on labelled examples: accuracy, calibration, length bias, ranking and, on task problems,
 * agreement with the verifier.
 *
 *     const report = await evaluateReward({ checkpoint: 'checkpoints/rm/run/final', dataset: 'test-pairs.jsonl' });
 *     report.accuracy; report.calibration.ece;
 */

import { checkArguments, either, integer, text, whole } from '../arguments.ts';
import { type DatasetOptions, type DatasetSpec, openDataset, type Shape } from '../data/index.ts';
import { joinWorld } from '../dist/world.ts';
import { checkNames } from '../errors.ts';
import { datasetHub } from '../hub/hub.ts';
import type { LoadOptions, Precision, QuantType } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import { correlation } from '../rewards/error-analysis.ts';
import {
  areaUnderCurve,
  bestOfN,
  type Calibration,
  calibration,
  type Decisions,
  decisionsOf,
  type ErrorAnalysis,
  errorAnalysis,
  loadRewardModel,
  pairwiseAccuracy,
  type RewardItem,
  type RewardModelScorer,
  type RewardType,
  type StepAggregation,
  topAccuracy,
} from '../rewards/index.ts';
import { anyScorer } from '../rewards/scorer.ts';
import { type CorpusKind, corpusRows, type Example, task } from '../tasks/index.ts';

import { dealtScorer } from './dealt-scorer.ts';

/** The reward model and the data of `evaluateReward`. */
export interface RewardEvaluationOptions extends LoadOptions {
  /** A trained reward model's folder or hub name, or the scorer itself. */
  checkpoint: string | RewardModelScorer;
  dataset?: DatasetSpec;
  /** Tasks to generate problems from, instead of a dataset: `chain_sum:1,gcd:2`. Only test problems are used. */
  tasks?: string;
  reading?: DatasetOptions;
  maxSamples?: number;
  seed?: number;
  /** How a PRM's step scores are combined. */
  steps?: StepAggregation;
  /** As in `RewardModelOptions`. A given scorer has its own. */
  precision?: Precision;
  progress?: Progress;
  signal?: AbortSignal;
}

/** The results of a reward model's evaluation. */
export interface RewardEvaluation {
  model: string;
  /** The quantisation of its weights; null for none. */
  quant_type: QuantType | null;
  /** The precision of its scores: `fast` if that was requested and the device supports it. */
  precision: Precision;
  type: RewardType;
  dataset: string;
  examples: number;
  /** Responses that, with their prompt, are too long for the model, which scored only their ends. */
  truncated: number;
  left_out: Record<string, number>;
  accuracy: number;
  accuracy_interval: [number, number];
  /** Pairs: the accuracy of "the longer response is better". Otherwise the share of the most common label. */
  baseline_accuracy: number;
  score: { mean: number; std: number };
  length_bias: ErrorAnalysis['length_bias'] & { score_length_correlation: number };
  calibration: Calibration;
  margins: ErrorAnalysis['margins'];
  by_source: ErrorAnalysis['by_source'];
  /** Graded solutions and steps: accuracy by true label. `balanced_accuracy` is the mean over labels. */
  by_label: ErrorAnalysis['by_label'];
  balanced_accuracy: number | null;
  ranking?: { auc: number; pairwise_accuracy?: number; top1_accuracy?: number; best_of_n: Record<string, number> };
  verifier?: { responses: number; auc?: number; pairwise_agreement?: number; score_correlation: number };
  errors: ErrorAnalysis;
}

const optionNames: Record<keyof RewardEvaluationOptions, true> = {
  ...{ checkpoint: true, dataset: true, tasks: true, reading: true, maxSamples: true, seed: true, steps: true },
  ...{ precision: true, progress: true, signal: true, dtype: true, device: true, quantType: true },
};
const shapes: Record<RewardType, Shape> = { preference: 'preference', outcome: 'graded', process: 'steps' };
const kinds: Record<RewardType, CorpusKind> = { preference: 'preference', outcome: 'graded', process: 'steps' };

/** Evaluates a reward model on labelled examples; `decided` has the individual decisions. */
export async function evaluateReward(
  options: RewardEvaluationOptions,
): Promise<RewardEvaluation & { readonly decided: Decisions }> {
  const known = { checkpoint: either(text, anyScorer), maxSamples: whole(1), seed: integer, tasks: text };
  checkArguments('evaluateReward', options, known, ['checkpoint']);
  checkNames('evaluateReward', options, Object.keys(optionNames));
  const { checkpoint, progress, signal } = options;
  const owned = typeof checkpoint === 'string';
  const { steps, dtype, device, quantType, precision } = options;
  const how = { steps, dtype, device, quantType, precision, progress };
  const scorer = owned ? await loadRewardModel(checkpoint, how) : checkpoint;
  try {
    const { type } = scorer.notes;
    const rows = options.tasks === undefined ? undefined : taskRows(type, options);
    const { maxSamples, seed = 42 } = options;
    const dataset = await openDataset(rows ?? options.dataset ?? [], {
      hub: datasetHub({ progress }),
      stripThinking: scorer.notes.stripThinking,
      ...options.reading,
      shape: shapes[type],
      seed,
      ...(rows === undefined ? { maxSamples } : {}),
    });
    const examples = await dataset.toArray();
    const world = await joinWorld();
    const cut = new Set<RewardItem>();
    const decided = await decisionsOf(dealtScorer(scorer, world), examples as Parameters<typeof decisionsOf>[1], {
      signal,
      onTruncated: (item) => cut.add(item),
    });
    const name = options.tasks ?? (typeof options.dataset === 'string' ? options.dataset : dataset.name);
    const report = summary(type, decided, rows === undefined ? undefined : goldOf(rows));
    const model = owned ? checkpoint : (scorer.model.folder ?? scorer.name);
    const heading = {
      model,
      quant_type: scorer.model.decoder.quantType,
      precision: scorer.precision,
      type,
      dataset: name,
      examples: examples.length,
      truncated: (await world.gather(cut.size)).reduce((sum, count) => sum + count, 0),
      left_out: dataset.tally.dropped,
    };
    return Object.defineProperty({ ...heading, ...report }, 'decided', { value: decided }) as never;
  } finally {
    if (owned) scorer.dispose();
  }
}

type TaskRow = Record<string, unknown> & { task: string; seed: number; difficulty: number };

function taskRows(type: RewardType, { tasks = '', maxSamples = 500, seed = 42 }: RewardEvaluationOptions): TaskRow[] {
  const perPrompt = type === 'outcome' ? 4 : 1;
  const options = { tasks, seed, count: maxSamples, part: 'test', perPrompt } as const;
  return [...corpusRows(kinds[type], options)] as unknown as TaskRow[];
}

/** The task problem of each prompt. */
function goldOf(rows: readonly TaskRow[]): Map<string, Example> {
  return new Map(
    rows.map((row) => {
      const example = task(row.task).generate(row.seed, row.difficulty);
      return [example.prompt, example];
    }),
  );
}

/** All numbers of the report, computed from the decisions alone. */
export function summary(type: RewardType, decided: Decisions, gold?: ReadonlyMap<string, Example>) {
  const { decisions, forecasts, scores, groups } = decided;
  const pairs = type === 'preference';
  const errors = errorAnalysis(decisions, { pairs });
  const values = scores.map(({ score }) => score);
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const lengths = scores.map(({ response }) => response.length);
  return {
    accuracy: errors.accuracy,
    accuracy_interval: errors.accuracy_interval,
    baseline_accuracy: pairs ? longerIsBetter(decided) : commonestLabel(errors),
    score: { mean, std: values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0 },
    length_bias: { ...errors.length_bias, score_length_correlation: correlation(values, lengths) },
    calibration: calibration(forecasts, { from: pairs ? 0.5 : 0 }),
    margins: errors.margins,
    by_source: errors.by_source,
    by_label: errors.by_label,
    balanced_accuracy: errors.balanced_accuracy,
    ranking: rankingOf(groups),
    ...(gold === undefined ? {} : { verifier: agreement(decided, gold) }),
    errors,
  };
}

function longerIsBetter({ decisions }: Decisions): number {
  const points = decisions.reduce((sum, { length }) => sum + (length > 0 ? 1 : length === 0 ? 0.5 : 0), 0);
  return points / Math.max(1, decisions.length);
}

/** The accuracy of always giving the most common label. */
function commonestLabel({ decisions, by_label: labels }: ErrorAnalysis): number {
  return Math.max(0, ...Object.values(labels).map((label) => label.decisions)) / Math.max(1, decisions);
}

/** undefined if all solutions have the same grade. */
function rankingOf(groups: Decisions['groups']): RewardEvaluation['ranking'] {
  const auc = areaUnderCurve(groups.flat());
  if (auc === undefined) return undefined;
  const largest = Math.max(...groups.map((group) => group.length));
  const best: Record<string, number> = {};
  for (let n = 1; n <= largest; n *= 2) {
    // Stops when fewer than a tenth of the problems have this many responses.
    if (groups.filter((group) => group.length >= n).length < groups.length / 10) break;
    const share = bestOfN(groups, n);
    if (share !== undefined) best[n] = share;
  }
  return {
    auc,
    pairwise_accuracy: pairwiseAccuracy(groups),
    top1_accuracy: topAccuracy(groups),
    best_of_n: best,
  };
}

/** Compares scores with the task's own verifier instead of the dataset's labels. */
function agreement({ scores }: Decisions, gold: ReadonlyMap<string, Example>): RewardEvaluation['verifier'] {
  const judged = scores.flatMap(({ prompt, response, score }) => {
    const example = gold.get(prompt);
    return example === undefined ? [] : [{ prompt, score, grade: task(example.task).score(response, example) }];
  });
  const graded = judged.map(({ prompt, score, grade }) => ({ prompt, score, correct: grade === 1 }));
  return {
    responses: judged.length,
    auc: areaUnderCurve(graded),
    pairwise_agreement: pairwiseAccuracy([...Map.groupBy(graded, ({ prompt }) => prompt).values()]),
    score_correlation: correlation(
      judged.map(({ score }) => score),
      judged.map(({ grade }) => grade),
    ),
  };
}
