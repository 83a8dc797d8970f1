/** The options of `attune train preference`: one schema for flags, files, programs and the saved config. */
import { z } from 'zod';
import {
  type PreferenceLoss,
  type PreferenceOptions,
  preferenceLoss,
  preferenceLosses,
  preferenceOptions,
} from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import { cadenceFields, field, loraFields, optimizerFields, runFields, withRules } from '../../runs/index.ts';
import { dataFields, modelFields, quantTypeField } from '../fields.ts';
import { checkQuantised } from '../reference/options.ts';
import { bestRules, cadenceRules, dataRules, loraRules } from '../rules.ts';

const group = { loss: 'Loss', reference: 'Reference', data: 'Data', model: 'Model', samples: 'Samples' } as const;
const positive = () => z.number().int().positive();

/** The canonical name of a loss, from a name or an alias. */
export const lossName = (value: string) => preferenceLoss(value).name;

const lossField = () =>
  field(
    z
      .string()
      .default('dpo')
      .transform((value, context) => {
        try {
          return lossName(value);
        } catch (error) {
          context.addIssue({ code: 'custom', message: (error as Error).message });
          return z.NEVER;
        }
      }),
    {
      description: `the loss: ${preferenceLosses.map(({ name }) => name).join(', ')}`,
      names: preferenceLosses.map(({ name }) => name),
      group: group.loss,
      aliases: ['lossType', 'method'],
      fixed: 'value',
    },
  );

/** Options of the losses. Each loss has its own defaults, and an option that it does not read is refused. */
export const lossOptionFields = {
  beta: field(z.number().positive().optional(), {
    description: "strength of the KL constraint to the reference; the loss's own default",
    group: group.loss,
    aliases: ['dpoBeta'],
  }),
  labelSmoothing: field(z.number().min(0).lt(0.5).optional(), {
    description: 'share of the labels taken to be wrong',
    group: group.loss,
  }),
  lengthNormalize: field(z.boolean().optional(), {
    description: 'ipo: log-ratios divided by length, as TRL does',
    group: group.loss,
    fixed: 'value',
  }),
  gammaBetaRatio: field(z.number().min(0).optional(), {
    description: 'simpo: target margin as a multiple of beta',
    group: group.loss,
    aliases: ['gamma'],
  }),
  desirableWeight: field(z.number().min(0).optional(), {
    description: 'kto: weight of good responses',
    group: group.loss,
  }),
  undesirableWeight: field(z.number().min(0).optional(), {
    description: 'kto: weight of bad responses',
    group: group.loss,
  }),
};

const shape = z.object({
  loss: lossField(),
  ...lossOptionFields,
  ...modelFields({ model: 'Qwen/Qwen3-0.6B' }),
  dropout: field(z.boolean().default(false), {
    description: "keep the model's own dropout while training; off, policy and reference start equal",
    group: group.model,
  }),
  refModel: field(z.union([z.string(), z.literal(false)]).optional(), {
    description: 'another model as the reference; left out: the start itself (with LoRA the base, adapters off)',
    group: group.reference,
    aliases: ['refModelId'],
    fixed: 'model',
  }),
  refQuantType: quantTypeField('hold the blocks of the reference in 8 or 4 bits', group.reference),
  refModelUpdateFreq: field(positive().optional(), {
    description: 'steps after which the current policy becomes the reference',
    group: group.reference,
  }),
  precomputeRef: field(z.boolean().default(false), {
    description: 'compute reference log-probs once, before training, and keep them on disk',
    group: group.reference,
    aliases: ['precomputeRefLogProbs'],
  }),
  ...dataFields({ maxLength: 1024 }),
  maxPromptLength: field(positive().optional(), {
    description: 'tokens; longer prompts keep their end',
    group: group.data,
  }),
  maxCompletionLength: field(positive().optional(), {
    description: 'tokens; longer responses keep their beginning',
    group: group.data,
    aliases: ['maxResponseLength'],
  }),
  evalBatchSize: field(positive().optional(), {
    description: 'examples per evaluation batch; --batch-size when left out',
    group: group.data,
  }),
  evalSubsetSize: field(positive().optional(), {
    picksHeldOut: true,
    description: 'evaluate on this many held-out examples at most',
    group: group.data,
    aliases: ['maxEvalSamples'],
  }),
  maxSteps: field(positive().optional(), { description: 'end after this many steps', group: 'Optimiser' }),
  ...optimizerFields({ lr: 1e-6, batchSize: 4, gradAccum: 4, maxGradNorm: 1 }),
  ...cadenceFields({ evalSteps: 50, saveSteps: 500 }),
  ...loraFields(),
  sampleSteps: field(z.number().int().min(-1).default(-1), {
    description: 'steps between sample generations, -1 = never',
    group: group.samples,
    aliases: ['sampleEvery'],
  }),
  sampleCount: field(positive().default(3), {
    description: 'prompts each time',
    group: group.samples,
    aliases: ['sampleNumPrompts'],
  }),
  sampleOrder: field(z.enum(['fixed', 'round-robin', 'random']).default('fixed'), {
    description: 'which held-out prompts: always the first, the next ones, or any',
    group: group.samples,
    elsewhere: { samplePromptStrategy: (value) => String(value).replaceAll('_', '-') },
  }),
  sampleMaxNewTokens: field(positive().default(128), { description: 'tokens of each sample', group: group.samples }),
  sampleTemperature: field(z.number().min(0).default(0.7), { description: '0 = greedy', group: group.samples }),
  ...runFields({ outputDir: './checkpoints/preference', logDir: './logs/preference' }),
});

const samples = ['sampleCount', 'sampleOrder', 'sampleMaxNewTokens', 'sampleTemperature'] as const;

/** The options of `trainPreference`, with descriptions and defaults. */
export const preferenceSchema = withRules(shape, [
  ...cadenceRules,
  ...bestRules,
  ...loraRules,
  ...dataRules<z.output<typeof shape>>(['evalBatchSize', 'evalSubsetSize', 'sampleSteps']),
  { options: samples, unread: ({ sampleSteps }) => sampleSteps <= 0, because: 'samples come with --sample-steps' },
  {
    options: ['evalBatchSize'],
    unread: ({ evalSteps }) => evalSteps <= 0,
    because: 'nothing is evaluated with --eval-steps -1',
  },
  {
    options: ['evalSubsetSize'],
    unread: ({ evalSteps, sampleSteps }) => evalSteps <= 0 && sampleSteps <= 0,
    because: 'nothing is evaluated with --eval-steps -1',
  },
  {
    options: ['completionColumn', 'labelColumn'],
    unread: ({ loss }) => preferenceLoss(loss).paired,
    because: ({ loss }) => `${loss} learns from pairs, a chosen and a rejected response`,
  },
  {
    options: ['textColumn'],
    unread: () => true,
    because: 'direct alignment learns from prompts and responses, not from plain text',
  },
]);

/** The options of `trainPreference`, with defaults filled in. */
export type PreferenceConfig = z.output<typeof preferenceSchema>;
export type PreferenceConfigInput = z.input<typeof preferenceSchema>;

/** The loss of a config and its options. Conflicts are reported before anything is loaded. */
export function configuredLoss(config: PreferenceConfig): { algorithm: PreferenceLoss; options: PreferenceOptions } {
  const algorithm = preferenceLoss(config.loss);
  const changes: Partial<PreferenceOptions> = {};
  for (const name of Object.keys(lossOptionFields) as (keyof typeof lossOptionFields)[]) {
    if (config[name] !== undefined) Object.assign(changes, { [name]: config[name] });
  }
  const options = preferenceOptions(algorithm, changes);
  const free = preferenceLosses.filter((loss) => !loss.needsReference).map(({ name }) => name);
  if (algorithm.needsReference && config.refModel === false) {
    throw new UserError(
      `${algorithm.name} compares with a reference, so it cannot go without one. Losses that can: ${free.join(', ')}.`,
    );
  }
  if (
    !algorithm.needsReference &&
    (typeof config.refModel === 'string' || config.precomputeRef || config.refModelUpdateFreq || config.refQuantType)
  ) {
    throw new UserError(
      `${algorithm.name} has no reference: leave out --ref-model, --ref-quant-type, --precompute-ref and --ref-model-update-freq.`,
    );
  }
  if (config.precomputeRef && config.refModelUpdateFreq !== undefined) {
    throw new UserError(
      'A moving reference (--ref-model-update-freq) cannot be computed beforehand (--precompute-ref).',
    );
  }
  checkQuantised(config, config.lora);
  return { algorithm, options };
}
