/**
 * Fields that several commands share, each with that command's own defaults.
 *
 *     const schema = z.object({ ...runFields({ outputDir: './checkpoints/rm' }), ...optimizerFields({ lr: 1e-5 }), ...loraFields() });
 */
import { z } from 'zod';
import { field } from './fields.ts';

const group = { run: 'Run', optimizer: 'Optimiser', cadence: 'Evaluation and checkpoints', lora: 'LoRA' } as const;

export interface RunDefaults {
  outputDir: string;
  logDir?: string;
}

/** A run's folders, its name, and the checkpoint to resume from. */
export function runFields(defaults: RunDefaults) {
  return {
    config: field(z.string().optional(), {
      description: 'YAML or JSON file with any of these options',
      group: group.run,
      transient: true,
    }),
    resumeFrom: field(z.string().optional(), {
      description: 'checkpoint or run folder to resume from, or "latest"; its config is loaded',
      group: group.run,
      aliases: ['resumeFromCheckpoint'],
      transient: true,
    }),
    allowChangedData: field(z.boolean().default(false), {
      description: 'resume even if the training data differ from those of the checkpoint',
      group: group.run,
      transient: true,
    }),
    dryRun: field(z.boolean().default(false), {
      description: 'show what would be done, and stop',
      group: group.run,
      transient: true,
    }),
    outputDir: field(z.string().default(defaults.outputDir), { description: 'folder for runs', group: group.run }),
    logDir: field(z.string().optional().prefault(defaults.logDir), {
      description: 'folder for TensorBoard files',
      group: group.run,
      aliases: ['loggingDir'],
    }),
    runName: field(z.string().optional(), {
      description: 'name of the run; date and time when left out',
      group: group.run,
      aliases: ['wandbRunName'],
    }),
    seed: field(z.number().int().min(0).default(42), {
      description: 'seed of everything random',
      group: group.run,
      fixed: 'value',
    }),
    reportTo: field(z.array(z.enum(['tensorboard', 'wandb', 'none'])).default(['tensorboard']), {
      description: 'where metrics go besides metrics.jsonl',
      group: group.run,
    }),
    wandbProject: field(z.string().optional(), {
      description: 'W&B project; WANDB_PROJECT when left out',
      group: group.run,
    }),
  };
}

export interface OptimizerDefaults {
  epochs?: number;
  batchSize?: number;
  lr: number;
  gradAccum?: number;
  maxGradNorm?: number;
  warmupRatio?: number;
  weightDecay?: number;
}

export function optimizerFields(defaults: OptimizerDefaults) {
  const positive = () => z.number().int().positive();
  return {
    epochs: field(
      z
        .number()
        .positive()
        .default(defaults.epochs ?? 1),
      { description: 'passes over the data', group: group.optimizer, aliases: ['numEpochs'] },
    ),
    batchSize: field(positive().default(defaults.batchSize ?? 32), {
      description: 'examples per micro-batch',
      group: group.optimizer,
    }),
    gradAccum: field(positive().default(defaults.gradAccum ?? 4), {
      description: 'micro-batches per optimiser step',
      group: group.optimizer,
      aliases: ['gradAccumSteps', 'gradientAccumulationSteps'],
    }),
    lr: field(z.number().min(0).default(defaults.lr), {
      description: 'peak learning rate',
      group: group.optimizer,
      aliases: ['learningRate'],
    }),
    lrSchedule: field(z.enum(['constant', 'linear', 'cosine']).default('linear'), {
      description: 'course of the learning rate after warm-up',
      group: group.optimizer,
    }),
    warmupRatio: field(
      z
        .number()
        .min(0)
        .max(1)
        .default(defaults.warmupRatio ?? 0),
      { description: 'share of the steps that warm up', group: group.optimizer },
    ),
    warmupSteps: field(z.number().int().min(0).optional(), {
      description: 'warm-up in steps, in place of --warmup-ratio',
      group: group.optimizer,
    }),
    weightDecay: field(
      z
        .number()
        .min(0)
        .default(defaults.weightDecay ?? 0),
      { description: 'decoupled weight decay of matrices', group: group.optimizer },
    ),
    maxGradNorm: field(
      z
        .number()
        .min(0)
        .default(defaults.maxGradNorm ?? 10),
      { description: 'clip gradients to this norm, 0 = off', group: group.optimizer, aliases: ['maxNorm'] },
    ),
    gradientCheckpointing: field(z.boolean().default(false), {
      description: 'less memory, more time',
      group: group.optimizer,
    }),
    exact: field(z.boolean().default(false), {
      description: 'add gradients in the order of micro-batches: any number of ranks gives the same bits',
      group: group.optimizer,
    }),
    shard: field(z.enum(['none', 'optimizer', 'full']).default('none'), {
      description:
        'what is sharded over the ranks: nothing, the optimiser state (ZeRO-2), or also the weights (ZeRO-3)',
      group: group.optimizer,
    }),
  };
}

export interface CadenceDefaults {
  evalSteps?: number;
  saveSteps?: number;
  logSteps?: number;
  /** The default metric for the best model. */
  metric?: string;
}

export function cadenceFields(defaults: CadenceDefaults = {}) {
  const steps = () => z.number().int().min(-1);
  return {
    evalSteps: field(steps().default(defaults.evalSteps ?? 50), {
      description: 'steps between evaluations, -1 = never',
      group: group.cadence,
    }),
    saveSteps: field(steps().default(defaults.saveSteps ?? 500), {
      description: 'steps between checkpoints, -1 = never',
      group: group.cadence,
    }),
    logSteps: field(
      z
        .number()
        .int()
        .positive()
        .default(defaults.logSteps ?? 1),
      {
        description: 'steps per row of metrics',
        group: group.cadence,
        aliases: ['loggingSteps', 'logEvery'],
      },
    ),
    saveTotalLimit: field(z.number().int().positive().optional(), {
      description: 'checkpoints to keep; the best and the resumed one are always kept',
      group: group.cadence,
    }),
    saveModel: field(z.boolean().default(true), { description: 'save the final model', group: group.cadence }),
    metricForBestModel: field(z.string().optional(), {
      description: `evaluation metric that chooses best_model; ${defaults.metric ?? 'eval/loss'} if one is needed and none is named`,
      group: group.cadence,
    }),
    greaterIsBetter: field(z.boolean().optional(), {
      description:
        'whether a greater value of the metric is better; by its name when left out (not for losses, perplexity and KLs)',
      group: group.cadence,
    }),
    earlyStoppingPatience: field(z.number().int().positive().optional(), {
      description: 'evaluations without improvement before the run ends',
      group: group.cadence,
    }),
    loadBestModelAtEnd: field(z.boolean().default(false), {
      description: 'the final model is the best one',
      group: group.cadence,
    }),
  };
}

export function loraFields(defaults: { r?: number; alpha?: number; dropout?: number } = {}) {
  return {
    lora: field(z.boolean().default(false), {
      description: 'train low-rank adapters instead of all weights',
      group: group.lora,
    }),
    quantType: field(z.enum(['int8', 'int4']).optional(), {
      description: 'QLoRA: hold the frozen base of the adapters in 8 or 4 bits; with lora only',
      group: group.lora,
    }),
    loraR: field(
      z
        .number()
        .int()
        .positive()
        .default(defaults.r ?? 16),
      { description: 'rank', group: group.lora },
    ),
    loraAlpha: field(
      z
        .number()
        .positive()
        .default(defaults.alpha ?? 32),
      { description: 'scale, divided by the rank', group: group.lora },
    ),
    loraDropout: field(
      z
        .number()
        .min(0)
        .max(1)
        .default(defaults.dropout ?? 0.05),
      { description: 'dropout before the adapter', group: group.lora },
    ),
    loraTargetModules: field(z.array(z.string()).optional(), {
      description: 'adapted modules; the right ones for the family when left out',
      group: group.lora,
      examples: ['q_proj,k_proj,v_proj,o_proj'],
    }),
    loraBias: field(z.enum(['none', 'all', 'lora_only']).default('none'), {
      description: 'which biases of the base are also trained',
      group: group.lora,
    }),
    useRslora: field(z.boolean().default(false), { description: 'scale by alpha/√r', group: group.lora }),
    useDora: field(z.boolean().default(false), {
      description: 'DoRA: train the magnitude of each row separately from its direction',
      group: group.lora,
    }),
  };
}
