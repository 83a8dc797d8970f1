/**
 * The pipeline's YAML: one recipe for many models. All faults of a file are reported together.
 *
 *     const { config } = readPipeline('recipes/full.yaml', { outputDir: './elsewhere' });
 */

import { z } from 'zod';
import { suggestion } from '../../errors.ts';
import { quantTypes } from '../../models/index.ts';
import { ConfigError, type Fault, field, type ResolvedConfig, resolveConfig } from '../../runs/index.ts';
import { evalName } from '../../trainers/loop/config.ts';
import { lossName, lossOptionFields, preferenceSchema } from '../../trainers/preference/config.ts';
import { preferenceMetrics } from '../../trainers/preference/objective.ts';

const positive = () => z.number().int().positive();
const named = (description: string) => z.string().min(1).optional().describe(description);

const modelSchema = z.object({
  name: z.string().regex(/^[^/\\]*[^./\\][^/\\]*$/, 'the name of a folder'),
  huggingfaceId: field(z.string().min(1), { description: 'hub name or folder', aliases: ['path'] }),
  trustRemoteCode: z.boolean().default(false),
});

const datasetSchema = z.object({
  name: z.string().min(1),
  split: z.string().optional(),
  subset: z.string().optional(),
  promptColumn: named('the column of prompts'),
  chosenColumn: named('the column of preferred responses'),
  rejectedColumn: named('the column of other responses'),
  completionColumn: named('unpaired data: the column of responses'),
  labelColumn: named('unpaired data: the column that says whether a response is good'),
  maxSamples: positive().optional(),
  validationSplit: z.number().min(0).max(0.9).default(0.1),
});

const loss = (name: string) =>
  z.string().transform((value, context) => {
    try {
      return lossName(value);
    } catch (error) {
      context.addIssue({ code: 'custom', message: `${name}: ${(error as Error).message}` });
      return z.NEVER;
    }
  });

const postTrainingSchema = z.object({
  method: loss('method').prefault('dpo'),
  lossType: loss('loss_type').optional(),
  ...lossOptionFields,
  useRefModel: z.boolean().default(true),
  refModelId: z.string().optional(),
  refQuantType: preferenceSchema.shape.refQuantType,
  refModelUpdateFreq: positive().optional(),
  precomputeRef: field(z.boolean().default(false), {
    description: 'reference log-probs once, kept on disk',
    aliases: ['precomputeRefLogProbs'],
  }),
});

const loraSchema = z.object({
  /** false trains all weights. */
  enabled: z.boolean().default(true),
  /** QLoRA: the base in 8 or 4 bits. */
  quantType: z.enum(quantTypes).optional(),
  r: positive().default(8),
  loraAlpha: z.number().positive().default(16),
  loraDropout: z.number().min(0).lt(1).default(0.05),
  bias: z.enum(['none', 'all', 'lora_only']).default('none'),
  targetModules: z.union([z.array(z.string()), z.string()]).optional(),
  taskType: z.literal('CAUSAL_LM').default('CAUSAL_LM'),
  useRslora: z.boolean().default(false),
  useDora: z.boolean().default(false),
});

const trainingSchema = z.object({
  outputDir: z.string().default('./outputs'),
  numEpochs: field(z.number().positive().default(3), {
    description: 'passes over the data',
    aliases: ['numTrainEpochs'],
  }),
  maxSteps: positive().optional(),
  perDeviceTrainBatchSize: positive().default(4),
  perDeviceEvalBatchSize: positive().default(4),
  gradientAccumulationSteps: positive().default(4),
  learningRate: z.number().min(0).default(5e-7),
  lrSchedule: field(z.enum(['constant', 'linear', 'cosine']).default('linear'), {
    description: 'course of the learning rate',
    aliases: ['lrSchedulerType'],
  }),
  warmupSteps: z.number().int().min(0).default(100),
  maxSeqLength: field(positive().default(512), { description: 'tokens of a whole example', aliases: ['maxLength'] }),
  maxPromptLength: positive().default(256),
  maxCompletionLength: positive().default(256),
  loggingSteps: positive().default(10),
  saveSteps: z.number().int().min(-1).default(500),
  evalSteps: z.number().int().min(-1).default(500),
  saveTotalLimit: positive().default(3),
  fp16: z
    .boolean()
    .default(false)
    .refine((value) => !value, {
      error: 'is not offered: float16 overflows without loss scaling. Set bf16: true, which needs none and is as fast.',
    }),
  bf16: z.boolean().default(false),
  gradientCheckpointing: z.boolean().default(true),
  optim: z.literal('adamw_torch').default('adamw_torch'),
  weightDecay: z.number().min(0).default(0.01),
  maxGradNorm: z.number().min(0).default(1),
});

const gpuSchema = z
  .object({ deviceIds: z.array(z.number().int().min(0)).default([0]), useDdp: z.boolean().default(false) })
  .refine(({ deviceIds, useDdp }) => useDdp || deviceIds.length <= 1, {
    path: ['deviceIds'],
    error: 'several devices train together with use_ddp: true; without it, give one id, or none for the CPU',
  });

const finetuningSchema = z.object({
  resumeFromCheckpoint: z.union([z.boolean(), z.string()]).optional(),
  loadBestModelAtEnd: z.boolean().default(true),
  metricForBestModel: z
    .string()
    .default('eval_loss')
    .refine((metric) => preferenceMetrics.includes(plain(metric)), {
      error: ({ input }) =>
        `is not measured: "${input}".${suggestion(plain(String(input)), preferenceMetrics)} There are: ${preferenceMetrics.map((name) => `eval_${name}`).join(', ')}.`,
    }),
  greaterIsBetter: z.boolean().optional(),
  earlyStoppingPatience: z.number().int().min(0).default(3),
});

const plain = (metric: string) => evalName(metric).slice('eval/'.length);

const loggingSchema = z.object({
  reportTo: z.array(z.enum(['tensorboard', 'wandb', 'none'])).default(['tensorboard']),
  loggingDir: z.string().default('./logs'),
  logLevel: z
    .string()
    .transform((level) => level.toLowerCase())
    .pipe(z.enum(['debug', 'info', 'warning', 'error']))
    .prefault('info'),
});

/** Samples of the policy's responses during training. */
const samplesSchema = z.object({
  steps: preferenceSchema.shape.sampleSteps,
  count: preferenceSchema.shape.sampleCount,
  order: preferenceSchema.shape.sampleOrder,
  maxNewTokens: preferenceSchema.shape.sampleMaxNewTokens,
  temperature: preferenceSchema.shape.sampleTemperature,
});

/** The options of a pipeline, with defaults. */
export const pipelineSchema = z.object({
  models: z.array(modelSchema).min(1),
  dataset: datasetSchema,
  postTraining: postTrainingSchema.prefault({}),
  lora: loraSchema.prefault({}),
  training: trainingSchema.prefault({}),
  gpu: gpuSchema.prefault({}),
  finetuning: finetuningSchema.prefault({}),
  logging: loggingSchema.prefault({}),
  wandb: z.object({ projectName: z.string().optional() }).prefault({}),
  samples: samplesSchema.prefault({}),
  seed: z.number().int().min(0).default(42),
});

/** The options of a pipeline, with defaults filled in. */
export type PipelineConfig = z.output<typeof pipelineSchema>;
export type PipelineModel = PipelineConfig['models'][number];

export interface PipelineOverrides {
  outputDir?: string;
}

/** Reads and checks a pipeline from a file or an object; the command line's options take precedence. */
export function readPipeline(
  file: string | Record<string, unknown>,
  overrides: PipelineOverrides = {},
): ResolvedConfig<typeof pipelineSchema> {
  const { outputDir } = overrides;
  const flags = outputDir === undefined ? undefined : { training: { outputDir } };
  const resolved = resolveConfig(pipelineSchema, { file, ...(flags ? { flags } : {}) });
  const source = typeof file === 'string' ? file : 'the config';
  const faults = Array.from(crossFaults(resolved.config), ([path, message]): Fault => ({ path, message, source }));
  if (faults.length > 0) throw new ConfigError(faults);
  return resolved;
}

/** Checks that involve several fields. */
function* crossFaults({
  models,
  postTraining,
  training,
  dataset,
  finetuning,
}: PipelineConfig): Iterable<[string, string]> {
  const seen = new Map<string, number>();
  for (const [i, { name }] of models.entries()) {
    const other = seen.get(name);
    if (other !== undefined)
      yield [`models[${i}].name`, `"${name}" is also models[${other}]: they would write into one folder.`];
    seen.set(name, i);
  }
  const { method, lossType, useRefModel, refModelId, refQuantType } = postTraining;
  if (lossOf(postTraining) === undefined)
    yield ['post_training.loss_type', `"${lossType}" contradicts method "${method}". Name the loss once.`];
  if (!useRefModel && refModelId !== undefined)
    yield ['post_training.ref_model_id', 'is given, but use_ref_model is false.'];
  if (!useRefModel && refQuantType !== undefined)
    yield ['post_training.ref_quant_type', 'is given, but use_ref_model is false.'];
  if (training.maxPromptLength >= training.maxSeqLength)
    yield training.maxPromptLength === trainingSchema.parse({}).maxPromptLength
      ? ['training.max_seq_length', `must be more than max_prompt_length, ${training.maxPromptLength} unless given.`]
      : [
          'training.max_prompt_length',
          `leaves no room for a response within max_seq_length, ${training.maxSeqLength}.`,
        ];
  const isPath = typeof finetuning.resumeFromCheckpoint === 'string';
  if (isPath && finetuning.resumeFromCheckpoint !== 'latest' && models.length > 1)
    yield [
      'finetuning.resume_from_checkpoint',
      'is one checkpoint, but there are several models. Write true: each goes on from its own newest one.',
    ];
  if (
    dataset.validationSplit === 0 &&
    finetuning.earlyStoppingPatience > 0 &&
    finetuning.metricForBestModel !== undefined &&
    finetuning.loadBestModelAtEnd
  )
    yield [
      'dataset.validation_split',
      'is 0, so there is nothing to choose the best model by. Hold some prompts out, or set finetuning.load_best_model_at_end: false.',
    ];
}

/**
 * The loss named by `method` and `loss_type` together. The type wins if the method is the standard one (`dpo`, `hinge`)
 * or the type is a variant of it (`kto`, `kto_pair`). The method wins if the type is only the standard one (`ipo`,
 * `sigmoid`). undefined if they contradict each other.
 */
function lossOf({ method, lossType = method }: PipelineConfig['postTraining']): string | undefined {
  const standard = postTrainingSchema.shape.method.parse(undefined);
  if (method === standard || lossType.startsWith(`${method}-`)) return lossType;
  return lossType === method || lossType === standard ? method : undefined;
}

/** The options of `trainPreference` for one model of a pipeline. */
export function preferenceInput(config: PipelineConfig, model: PipelineModel, device: string): Record<string, unknown> {
  const { dataset, postTraining, lora, training, finetuning, logging, samples } = config;
  const { method: _, lossType: __, useRefModel, refModelId, ...loss } = postTraining;
  const { targetModules } = lora;
  return {
    ...loss,
    loss: lossOf(postTraining),
    // 0 means no smoothing, which every loss accepts
    labelSmoothing: loss.labelSmoothing === 0 ? undefined : loss.labelSmoothing,
    // Adapters need no separate copy: the reference is the base with its adapters off.
    refModel: useRefModel ? refModelId : lora.enabled ? undefined : false,
    model: model.huggingfaceId,
    dtype: training.bf16 ? 'bfloat16' : 'float32',
    device,
    dataset: dataset.name,
    split: dataset.split,
    subset: dataset.subset,
    promptColumn: dataset.promptColumn,
    chosenColumn: dataset.chosenColumn,
    rejectedColumn: dataset.rejectedColumn,
    completionColumn: dataset.completionColumn,
    labelColumn: dataset.labelColumn,
    subsetSize: dataset.maxSamples,
    validationSplit: dataset.validationSplit,
    lora: lora.enabled,
    quantType: lora.quantType,
    loraR: lora.r,
    loraAlpha: lora.loraAlpha,
    loraDropout: lora.loraDropout,
    loraBias: lora.bias,
    loraTargetModules: typeof targetModules === 'string' ? [targetModules] : targetModules,
    useRslora: lora.useRslora,
    useDora: lora.useDora,
    epochs: training.numEpochs,
    maxSteps: training.maxSteps,
    batchSize: training.perDeviceTrainBatchSize,
    evalBatchSize: training.perDeviceEvalBatchSize,
    gradAccum: training.gradientAccumulationSteps,
    lr: training.learningRate,
    lrSchedule: training.lrSchedule,
    warmupSteps: training.warmupSteps,
    maxLength: training.maxSeqLength,
    maxPromptLength: training.maxPromptLength,
    maxCompletionLength: training.maxCompletionLength,
    logSteps: training.loggingSteps,
    saveSteps: training.saveSteps,
    evalSteps: training.evalSteps,
    saveTotalLimit: training.saveTotalLimit,
    gradientCheckpointing: training.gradientCheckpointing,
    weightDecay: training.weightDecay,
    maxGradNorm: training.maxGradNorm,
    metricForBestModel: dataset.validationSplit === 0 ? undefined : finetuning.metricForBestModel,
    greaterIsBetter: finetuning.greaterIsBetter ?? !finetuning.metricForBestModel.endsWith('loss'),
    earlyStoppingPatience: finetuning.earlyStoppingPatience || undefined,
    loadBestModelAtEnd: finetuning.loadBestModelAtEnd,
    outputDir: training.outputDir,
    runName: model.name,
    logDir: logging.loggingDir,
    reportTo: logging.reportTo,
    wandbProject: config.wandb.projectName,
    sampleSteps: samples.steps,
    sampleCount: samples.count,
    sampleOrder: samples.order,
    sampleMaxNewTokens: samples.maxNewTokens,
    sampleTemperature: samples.temperature,
    seed: config.seed,
  };
}
