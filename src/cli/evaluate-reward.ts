/** `attune evaluate reward`: evaluates a reward model on labelled examples. */
import type { Command } from 'commander';
import { z } from 'zod';
import { joinWorld } from '../dist/world.ts';
import { UserError } from '../errors.ts';
import { describeRewardSuite, writeRewardSuite } from '../evaluate/ranked/report.ts';
import { evaluateRewardSuite, knownRankedSuites } from '../evaluate/ranked/reward-suite.ts';
import { evaluateReward } from '../evaluate/reward.ts';
import { describeReward, writeRewardEvaluation } from '../evaluate/reward-report.ts';
import { deviceOf, dtypeOf } from '../models/index.ts';
import { field, withRules } from '../runs/index.ts';
import {
  columnOptions,
  columnsOf,
  dataFields,
  modelFields,
  quantTypeField,
  scoringPrecisionField,
} from '../trainers/fields.ts';
import { registerCommand } from './options/command.ts';
import { checkOutputFolder, noteReplaced } from './options/outputs.ts';
import { stepsField } from './options/reward-fields.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { tellIfExact } from './terminal/precision.ts';
import { print, printJson } from './terminal/print.ts';

const group = 'Evaluation';
const { dtype, device } = modelFields({ model: '' });
const data = z.object(dataFields()).omit({
  evalDataset: true,
  evalSplit: true,
  validationSplit: true,
  maxLength: true,
  promptFormat: true,
  tokenBudget: true,
});

const options = z.object({
  checkpoint: field(z.string(), {
    description: "a trained reward model's folder or hub name",
    group,
    aliases: ['model', 'rewardModelPath'],
  }),
  ...data.shape,
  subsetSize: field(z.number().int().positive().optional(), {
    description: 'evaluate on this many examples, drawn under the seed',
    group: 'Data',
    aliases: ['maxSamples'],
  }),
  suite: field(z.string().optional(), {
    description: `a ranked set in place of a dataset: ${knownRankedSuites.join(', ')}, or a file with prompt, chosen, rejected, subset or with prompt, responses, best`,
    group,
  }),
  task: field(z.string().optional(), {
    description: 'problems to generate in place of a dataset',
    group,
    examples: ['chain_sum:1,gcd:1'],
  }),
  steps: stepsField,
  dropTies: field(z.boolean().default(false), {
    description: 'leave out pairs that are equal or were graded equal',
    group: 'Data',
  }),
  minResponseChars: field(z.number().int().min(0).default(0), {
    description: 'leave out responses shorter than this',
    group: 'Data',
  }),
  outputDir: field(z.string().default('./evaluation'), { description: 'folder for JSON, text and picture', group }),
  seed: field(z.number().int().min(0).default(42), { description: 'of the sample, or of the problems', group }),
  json: field(z.boolean().default(false), { description: 'print the report as JSON', group }),
  dtype,
  device,
  quantType: quantTypeField('hold the blocks of the model in 8 or 4 bits', group),
  precision: scoringPrecisionField(group),
});

const reading = ['onBadRow', 'dropTies', 'minResponseChars'] as const;

export const evaluateRewardSchema = withRules(options, [
  {
    options: ['split', 'subset', 'columns', ...columnOptions, ...reading],
    unread: ({ task }) => task !== undefined,
    because: 'the problems are generated (--task)',
  },
  {
    options: [...reading, 'completionColumn', 'labelColumn', 'messagesColumn', 'textColumn'],
    unread: ({ suite }) => suite !== undefined,
    because: 'a ranked set (--suite) is taken whole, and has pairs',
  },
]);

export function registerEvaluateReward(evaluate: Command): void {
  registerCommand(evaluate, {
    name: 'reward',
    description: 'accuracy, margins, calibration, length bias, best of n, agreement with the verifier',
    schema: evaluateRewardSchema,
    examples: [
      'attune evaluate reward --checkpoint checkpoints/rm/run --task chain_sum:1,gcd:1',
      'attune evaluate reward --checkpoint checkpoints/rm/run/best_model --dataset held-out.jsonl',
      'attune evaluate reward --checkpoint checkpoints/rm/run/best_model --suite reward-bench',
    ],
    run,
  });
}

async function run(config: z.output<typeof evaluateRewardSchema>): Promise<void> {
  const given = [config.dataset, config.task, config.suite].filter((each) => each !== undefined);
  if (given.length !== 1)
    throw new UserError(
      `Say on what: --dataset, --task for problems that are generated, or --suite for a ranked set${given.length > 1 ? '; one of them, not several' : ''}.`,
    );
  checkOutputFolder('--output-dir', config.outputDir);
  using interrupt = onInterrupt();
  if (config.suite !== undefined) return rank(config, config.suite, interrupt.signal);
  const on = deviceOf(config.device);
  const { split, subset, onBadRow, dropTies, minResponseChars } = config;
  const evaluation = await evaluateReward({
    checkpoint: config.checkpoint,
    dataset: config.dataset,
    tasks: config.task,
    reading: { split, subset, onBadRow, dropTies, minResponseChars, columns: columnsOf(config) },
    maxSamples: config.subsetSize,
    seed: config.seed,
    steps: config.steps,
    device: on,
    dtype: dtypeOf(config.dtype, on),
    quantType: config.quantType,
    precision: config.precision,
    progress: consoleProgress(),
    signal: interrupt.signal,
  });
  if (!(await joinWorld()).isFirst) return;
  tellIfExact(config.precision, evaluation.precision);
  noteReplaced(config.outputDir, 'reward_evaluation.json');
  await writeRewardEvaluation(config.outputDir, evaluation, evaluation.decided);
  if (config.json) return printJson(evaluation, 2);
  print(describeReward(evaluation));
  print(`\nWritten: ${shown(config.outputDir)}/reward_evaluation.{json,txt,png}`);
}

/** A ranked set: does the model score the right response highest? */
async function rank(config: z.output<typeof evaluateRewardSchema>, suite: string, signal: AbortSignal): Promise<void> {
  const device = deviceOf(config.device);
  const { checkpoint: scorer, split, subset, subsetSize: limit, seed, steps, quantType, precision, outputDir } = config;
  const results = await evaluateRewardSuite({
    scorer,
    suite,
    split,
    subset,
    limit,
    seed,
    steps,
    quantType,
    precision,
    device,
    dtype: dtypeOf(config.dtype, device),
    columns: columnsOf(config),
    progress: consoleProgress(),
    signal,
  });
  if (!(await joinWorld()).isFirst) return;
  tellIfExact(precision, results.precision);
  noteReplaced(outputDir, 'reward_suite.json');
  await writeRewardSuite(outputDir, results);
  if (config.json) return printJson(results, 2);
  print(describeRewardSuite(results));
  print(`\nWritten: ${shown(outputDir)}/reward_suite.{json,txt,png}, reward_suite_items.jsonl`);
}
