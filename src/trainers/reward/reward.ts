/**
 * Reward models: preference (Bradley–Terry), outcome (ORM), process (PRM).
 *
 *     const run = await trainReward({ type: 'preference', model: './base', dataset: 'pairs.jsonl', lora: true });
 *     for await (const step of run) console.log(step.step, step.metrics['train/accuracy']);
 */
import type { z } from 'zod';
import type { Dataset, Shape, TokenStore } from '../../data/index.ts';
import type { Model } from '../../models/index.ts';
import type { RewardNotes, RewardType } from '../../rewards/index.ts';
import { rewardHeads } from '../../rewards/reward-notes.ts';
import { type ResolvedRun, refusal } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { batchTask } from '../batches/batch-task.ts';
import { allBatches } from '../batches/eval-sample.ts';
import { type Objective, outcomeObjective, preferenceObjective, processObjective } from '../batches/objectives.ts';
import { StepBatches } from '../batches/step-batches.ts';
import { type TokenSets, tokenSets } from '../batches/token-sets.ts';
import type { Judged } from '../loop/best.ts';
import { startRun } from '../loop/config.ts';
import { setUpTraining, trainingParts } from '../loop/set-up.ts';
import { type StepOf, type Training, trainingOf } from '../loop/training.ts';
import type { ProgramConfig, TrainerOptions, TrainingRun } from '../loop/training-run.ts';
import { withinPositions } from '../model-plan.ts';
import { loadForTraining, openForTraining, sourceOf } from '../setup.ts';
import { type RewardConfig, rewardSchema } from './config.ts';
import { referenceScores, rewardEvaluation } from './evaluation.ts';
import { writeRewardReport } from './report.ts';

/** The options of `trainReward`; datasets may be rows in memory. */
export type RewardInput = ProgramConfig<z.input<typeof rewardSchema>>;

/** A step of reward model training. */
export type RewardStep = StepOf<'accuracy', 'loss' | 'accuracy'>;

/**
 * Trains a reward model: on pairs, on graded solutions (`type: 'outcome'`), or on labelled steps (`type: 'process'`).
 */
export function trainReward(input: RewardInput, options: TrainerOptions = {}): Training<RewardStep> {
  return trainingOf({ command: 'train reward', schema: rewardSchema, start: startReward }, input, options);
}

/** `trainReward` from a resolved config. */
export function startReward(
  resolved: ResolvedRun<typeof rewardSchema>,
  options: TrainerOptions = {},
): Promise<TrainingRun> {
  const { config } = resolved;
  const { progress, signal } = options;
  return setUpTraining(config, async (opened, freed, world) => {
    sourceOf(config, options);
    const { model, tokenizer } = await loadForTraining(config, {
      head: rewardHeads[config.type],
      progress,
      refuse: refusal(rewardSchema, resolved),
    });
    freed.use(model);
    const data = await rewardTokens(config, tokenizer, options);
    opened.defer(() => data.close());
    const { train, validation, heldOut } = data;
    await checkMargins(config, train, refusal(rewardSchema, resolved));
    const objective = objectiveOf(config, model);
    const evaluate = validation && (await rewardEvaluation(config, model, objective, validation));
    const task = batchTask({
      model,
      tokenizer,
      objective,
      steps: new StepBatches(train, config),
      dataFingerprint: train.fingerprint,
      heldOutFingerprint: validation?.fingerprint,
      optimizer: { lr: config.lr, weightDecay: config.weightDecay, shard: config.shard },
      world,
      checkpointing: config.gradientCheckpointing,
      beforeSave: (taken) => noteTraining(config, model, taken, validation ?? train),
      ...(evaluate === undefined ? {} : { evaluate }),
    });
    opened.defer(() => task.optimizer.dispose());
    const run = await startRun('train reward', rewardSchema, resolved, options.run);
    opened.run = run;
    const report = { run, config, model, tokenizer, validation: heldOut, tally: train.tally, signal };
    return trainingParts(run, {
      schema: rewardSchema,
      resolved,
      options,
      task,
      model,
      tokenizer,
      label: 'reward model',
      world,
      judged: rewardMeasures(config.type),
      after: (result) => writeRewardReport({ ...report, result }),
    });
  });
}

/** Refuses `margin` if no pair has one. */
export async function checkMargins(
  { margin }: RewardConfig,
  train: TokenStore,
  refuse: (options: readonly string[], because: string) => void,
): Promise<void> {
  if (margin && !(await hasMargins(train))) refuse(['margin'], 'every pair of the dataset has the margin 0');
}

async function hasMargins(store: TokenStore): Promise<boolean> {
  for await (const { margins } of allBatches(store, 256)) if (margins.some((margin) => margin !== 0)) return true;
  return false;
}

/** `always`: reward models keep best_model without an option. */
export function rewardMeasures(type: RewardType): Judged {
  const own: Record<RewardType, string[]> = {
    preference: ['margin', 'chosen_reward', 'rejected_reward'],
    outcome: ['top1_accuracy', 'pairwise_accuracy', 'auc', 'correct_score', 'incorrect_score'],
    process: ['step_accuracy'],
  };
  return { metric: 'accuracy', names: ['loss', 'accuracy', ...own[type]], always: true };
}

/** The objective of a type. Types have different totals, which callers only pass on. */
function objectiveOf(config: RewardConfig, model: Model): Objective<object> {
  const { labelSmoothing, centring, margin } = config;
  const objectives: Record<RewardType, () => Objective<never>> = {
    preference: () => preferenceObjective(model, { labelSmoothing, centring, margin }) as Objective<never>,
    outcome: () => outcomeObjective(model) as Objective<never>,
    process: () => processObjective(model) as Objective<never>,
  };
  return objectives[config.type]() as Objective<object>;
}

const rewardShapes = { preference: 'preference', outcome: 'graded', process: 'steps' } as const satisfies Record<
  RewardType,
  Shape
>;

interface RewardTokens extends TokenSets {
  /** The held-out examples as text. */
  heldOut: Dataset | undefined;
}

/** The tokens of training and held-out data. */
export async function rewardTokens(
  asked: RewardConfig,
  tokenizer: Tokenizer,
  options: TrainerOptions,
): Promise<RewardTokens> {
  const { progress, signal, cache } = options;
  const config = await withinPositions(asked, progress);
  const { stripThinking, dropTies, margin, minResponseChars, stepSeparator, maxLength, promptFormat: format } = config;
  const shape = rewardShapes[config.type];
  const sets = await openForTraining(config, {
    given: options,
    progress,
    shape,
    stripThinking,
    dropTies,
    margins: margin,
    minResponseChars,
  });
  const encoding = { maxLength, format, stepSeparator, progress, signal, cache };
  return { ...(await tokenSets(sets, tokenizer, encoding)), heldOut: sets.validation as Dataset | undefined };
}

/**
 * Stores in the checkpoint how the model scores, and the mean and standard deviation of its scores on held-out
 * responses.
 */
async function noteTraining(config: RewardConfig, model: Model, step: number, reference: TokenStore): Promise<void> {
  const scores = await referenceScores(config, model, reference);
  const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
  const squares = scores.reduce((sum, score) => sum + (score - mean) ** 2, 0);
  model.notes.reward = {
    type: config.type,
    step,
    stripThinking: config.stripThinking,
    format: config.promptFormat,
    stepSeparator: config.stepSeparator,
    maxLength: config.maxLength,
    readAt: 'end-of-turn',
    mean,
    std: scores.length > 1 ? Math.sqrt(squares / (scores.length - 1)) : 0,
    count: scores.length,
  } satisfies RewardNotes;
}
