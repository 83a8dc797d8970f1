/** The options of `attune quantize reward` and `attune quantize policy`, with their defaults. */
import { z } from 'zod';
import { quantTypes } from '../../models/index.ts';
import { field, withRules } from '../../runs/index.ts';
import { dataFields, modelFields } from '../../trainers/fields.ts';
import { policySchema } from '../../trainers/policy/config.ts';

const group = 'Quantisation';
const evaluation = 'Evaluation';
const positive = () => z.number().int().positive();
const { dtype, device } = modelFields({ model: '' });

const shared = {
  quantType: field(z.enum(quantTypes).default('int8'), {
    description: 'int8: LLM.int8 row by row; int4: NF4 with double quantisation',
    group,
  }),
  skipSave: field(z.boolean().default(false), {
    description: 'measure only: no model is saved, and an existing one is kept',
    group,
  }),
  outputDir: field(z.string().optional(), {
    description: "folder for model and results; quantized_TYPE in the model's own, ./quantized_models for hub models",
    group,
  }),
  dtype,
  device,
  json: field(z.boolean().default(false), { description: 'print the results as JSON', group: evaluation }),
};

const { dataset, split, subset, onBadRow } = dataFields();

const rewardOptions = z.object({
  checkpoint: field(z.string(), {
    description: "a trained reward model's folder or hub name",
    group,
    aliases: ['model', 'rewardModelPath'],
  }),
  ...shared,
  dataset,
  split,
  subset,
  onBadRow,
  task: field(z.string().optional(), {
    description: 'problems to generate in place of a dataset',
    group: evaluation,
    examples: ['chain_sum:1,gcd:1'],
  }),
  evalBatchSize: field(positive().default(4), { description: 'examples per batch', group: evaluation }),
  evalNumBatches: field(positive().default(500), {
    description: 'batches; every example once where there are fewer',
    group: evaluation,
  }),
  maxLength: field(positive().default(2048), {
    description: 'tokens; longer examples are skipped and counted',
    group: evaluation,
  }),
  seed: field(z.number().int().min(0).default(1234), { description: 'of the sample', group: evaluation }),
});

/** The options of `quantizeReward`, with descriptions and defaults. */
export const quantizeRewardSchema = withRules(rewardOptions, [
  {
    options: ['split', 'subset', 'onBadRow'],
    unread: ({ dataset }) => dataset === undefined,
    because: 'there is no --dataset that it would be read from',
  },
]);

const policy = policySchema.shape;

const policyOptions = z.object({
  model: field(z.string(), {
    description: "a policy's folder or hub name (org/name[@revision])",
    group,
    aliases: ['checkpoint'],
  }),
  ...shared,
  numPrompts: field(positive().default(100), {
    description: 'prompts that the original responds to',
    group: evaluation,
  }),
  dataset: policy.dataset,
  subset: policy.subset,
  task: policy.task,
  promptFormat: policy.promptFormat,
  system: policy.system,
  maxNewTokens: field(positive().default(512), { description: 'longest answer, in tokens', group: evaluation }),
  temperature: field(z.number().positive().default(1), {
    description: 'of the responses and of the KL',
    group: evaluation,
  }),
  promptMaxLength: field(positive().default(1536), {
    description: 'tokens; longer prompts are left out',
    group: evaluation,
  }),
  seed: field(z.number().int().min(0).default(42), { description: 'of the prompts and responses', group: evaluation }),
});

/** The options of `quantizePolicy`, with descriptions and defaults. */
export const quantizePolicySchema = withRules(policyOptions, [
  {
    options: ['subset'],
    unread: ({ dataset }) => dataset === undefined,
    because: 'there is no --dataset that it would be a part of',
  },
]);

export type QuantizeRewardConfig = z.output<typeof quantizeRewardSchema>;
export type QuantizePolicyConfig = z.output<typeof quantizePolicySchema>;
