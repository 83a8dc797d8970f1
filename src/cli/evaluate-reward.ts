/** `attune evaluate reward`: what a reward model is worth on labelled examples. */
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import { evaluateReward } from '../evaluate/reward.ts';
import { describeReward, writeRewardEvaluation } from '../evaluate/reward-report.ts';
import { deviceOf, dtypeOf } from '../models/index.ts';
import { stepAggregations } from '../rewards/index.ts';
import { field, resolveConfig } from '../runs/index.ts';
import { columnsOf, dataFields, modelFields, quantTypeField } from '../trainers/fields.ts';
import { addSchemaOptions, schemaFlags } from './options/options.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
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

export const evaluateRewardSchema = z.object({
  checkpoint: field(z.string(), {
    description: "a trained reward model's folder or hub name",
    group,
    aliases: ['model', 'rewardModelPath'],
  }),
  ...data.shape,
  task: field(z.string().optional(), {
    description: 'problems to generate in place of a dataset',
    group,
    examples: ['chain_sum:1,gcd:1'],
  }),
  steps: field(z.enum(stepAggregations).default('min'), {
    description: "how a process model's step scores become one",
    group,
  }),
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
  ...{ dtype, device },
  quantType: quantTypeField('hold the blocks of the model in 8 or 4 bits', group),
});

export function registerEvaluateReward(evaluate: Command): void {
  const command = addSchemaOptions(
    evaluate
      .command('reward')
      .description('accuracy, margins, calibration, length bias, best of n, agreement with the verifier'),
    evaluateRewardSchema,
  );
  command.addHelpText(
    'after',
    '\nExample:\n  attune evaluate reward --checkpoint checkpoints/rm/run/final --task chain_sum:1,gcd:1',
  );
  command.action(async () => {
    const { config } = resolveConfig(evaluateRewardSchema, { flags: schemaFlags(command, evaluateRewardSchema) });
    if ((config.dataset === undefined) === (config.task === undefined))
      throw new UserError('Say on what: either --dataset, or --task for problems that are generated.');
    using interrupt = onInterrupt();
    const on = deviceOf(config.device);
    const { split, subset, onBadRow, dropTies, minResponseChars } = config;
    const evaluation = await evaluateReward({
      checkpoint: config.checkpoint,
      dataset: config.dataset,
      tasks: config.task,
      reading: { split, subset, onBadRow, dropTies, minResponseChars, columns: columnsOf(config) },
      ...{ maxSamples: config.subsetSize, seed: config.seed, steps: config.steps },
      ...{ device: on, dtype: dtypeOf(config.dtype, on), quantType: config.quantType },
      progress: consoleProgress(),
      signal: interrupt.signal,
    });
    await writeRewardEvaluation(config.outputDir, evaluation, evaluation.decided);
    config.json ? printJson(evaluation, 2) : print(describeReward(evaluation));
    if (!config.json) print(`\nWritten: ${shown(config.outputDir)}/reward_evaluation.{json,txt,png}`);
  });
}
