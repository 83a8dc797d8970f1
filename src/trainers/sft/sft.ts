/**
 * Supervised fine-tuning: chats (loss on the assistant's turns) or plain text, from a checkpoint or from scratch.
 *
 *     const run = await trainSft({ model: 'Qwen/Qwen3-0.6B', dataset: 'chats.jsonl', lora: true });
 *     for await (const step of run) console.log(step.step, step.metrics['train/loss']);
 */
import { z } from 'zod';
import type { Shape, TokenStore } from '../../data/index.ts';
import { UserError } from '../../errors.ts';
import type { Model } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import {
  cadenceFields,
  field,
  loraFields,
  optimizerFields,
  type ResolvedRun,
  refusal,
  runFields,
  withRules,
} from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { batchTask, evaluateBatches } from '../batches/batch-task.ts';
import { evalSample } from '../batches/eval-sample.ts';
import { type SftObjective, sftObjective } from '../batches/objectives.ts';
import type { TrainingPlan } from '../batches/plan.ts';
import { StepBatches } from '../batches/step-batches.ts';
import { type TokenSets, tokenSets } from '../batches/token-sets.ts';
import { dataFields, modelFields } from '../fields.ts';
import type { Judged } from '../loop/best.ts';
import { startRun } from '../loop/config.ts';
import { setUpTraining, trainingParts } from '../loop/set-up.ts';
import { type StepOf, type Training, trainingOf } from '../loop/training.ts';
import type { ProgramConfig, TrainerOptions, TrainingRun } from '../loop/training-run.ts';
import { withinPositions } from '../model-plan.ts';
import { bestRules, cadenceRules, dataRules, loraRules } from '../rules.ts';
import { loadForTraining, openForTraining, sourceOf } from '../setup.ts';
import { teacherFields } from '../teacher/options.ts';
import { checkTeacher, hasTeacher, openTeacher, type TeachingOptions, teachingMemory } from '../teacher/teacher.ts';
import { distillationObjective } from './distillation.ts';

const group = 'SFT';
const distillation = 'Distillation';

const shape = z.object({
  ...modelFields({ model: 'Qwen/Qwen3-0.6B' }),
  fromConfig: field(z.string().optional(), {
    description: 'config.json of a model to train from scratch, with --tokenizer',
    group: 'Model',
  }),
  ...dataFields({ validationSplit: 0.02 }),
  shape: field(z.enum(['auto', 'messages', 'text']).default('auto'), {
    description: 'chats or plain text; auto looks at the columns',
    group: 'Data',
  }),
  assistantOnly: field(z.boolean().default(true), {
    description: "chats: loss on the assistant's tokens only",
    group,
    fixed: 'value',
    aliases: ['assistantOnlyLoss'],
  }),
  packing: field(z.boolean().default(false), {
    description: 'fill micro-batches up to batch-size × max-length tokens; sequences never see each other',
    group,
  }),
  maxSteps: field(z.number().int().positive().optional(), { description: 'end after this many steps', group }),
  ...teacherFields(distillation),
  teacherTopK: field(z.number().int().min(0).default(64), {
    description: "KL over the teacher's k likeliest tokens, with all others combined into one; 0 = over every token",
    group: distillation,
  }),
  // Outside this range the factor T² amplifies rounding: the KL is computed in 32 bits.
  teacherTemperature: field(z.number().min(0.01).max(100).default(1), {
    description:
      "temperature T of both distributions in the KL, which is weighted by T²; higher values show more of the teacher's second choices",
    group: distillation,
  }),
  distillShare: field(z.number().min(0).max(1).default(1), {
    description: 'share α of the teacher in the loss, (1 − α)·NLL of the text + α·KL(teacher‖model)',
    group: distillation,
  }),
  evalNumBatches: field(z.number().int().positive().default(32), {
    picksHeldOut: true,
    description: 'batches per evaluation, drawn with replacement; all held-out examples once where they are fewer',
    group: 'Evaluation and checkpoints',
  }),
  evalBatchSize: field(z.number().int().positive().default(8), {
    picksHeldOut: true,
    description: 'examples per evaluation batch',
    group: 'Evaluation and checkpoints',
  }),
  ...optimizerFields({ lr: 2e-5, batchSize: 8, gradAccum: 4, maxGradNorm: 1, warmupRatio: 0.03 }),
  ...cadenceFields({ evalSteps: 100 }),
  ...loraFields(),
  ...runFields({ outputDir: './checkpoints/sft', logDir: './logs/sft' }),
});

/** The options of `trainSft`, with descriptions and defaults. */
export const sftSchema = withRules(shape, [
  ...cadenceRules,
  ...bestRules,
  ...loraRules,
  ...dataRules<z.output<typeof shape>>(['evalNumBatches', 'evalBatchSize']),
  {
    options: ['evalNumBatches', 'evalBatchSize'],
    unread: ({ evalSteps }) => evalSteps <= 0,
    because: 'nothing is evaluated with --eval-steps -1',
  },
  {
    options: ['model'],
    unread: ({ fromConfig }) => fromConfig !== undefined,
    because: 'the weights are fresh ones by --from-config',
  },
  {
    options: ['packing'],
    unread: ({ tokenBudget }) => tokenBudget !== undefined,
    because: '--token-budget fills micro-batches already',
  },
  {
    options: ['chosenColumn', 'rejectedColumn', 'labelColumn'],
    unread: ({ shape }) => shape !== 'messages',
    because: 'pairs and judged responses are read as chats only with --shape messages',
  },
  {
    options: ['assistantOnly', 'messagesColumn', 'promptColumn', 'completionColumn', 'promptFormat'],
    unread: ({ shape }) => shape === 'text',
    because: 'plain text has no turns',
  },
  {
    options: ['teacherQuantType', 'teacherTopK', 'teacherTemperature', 'distillShare'],
    unread: ({ teacher }) => teacher === undefined,
    because: 'there is no --teacher to learn from',
  },
  { options: ['textColumn'], unread: ({ shape }) => shape === 'messages', because: 'chats are read, not texts' },
]);

/** The options of `trainSft`, with defaults filled in. */
export type SftConfig = z.output<typeof sftSchema>;
/** The options of `trainSft`; datasets may be rows in memory. */
export type SftInput = ProgramConfig<z.input<typeof sftSchema>>;

/** The metrics of its evaluations. */
export const sftJudged = ({ teacher }: Pick<SftConfig, 'teacher'>): Judged => ({
  metric: 'loss',
  names: ['loss', 'perplexity', 'entropy', ...(teacher === undefined ? [] : ['teacher_kl', 'nll'])],
});

/** A step of supervised fine-tuning. */
export type SftStep = StepOf<'loss', 'loss'>;

/** Supervised fine-tuning on conversations or on plain text. */
export function trainSft(input: SftInput, options: TrainerOptions = {}): Training<SftStep> {
  return trainingOf({ command: 'train sft', schema: sftSchema, start: startSft }, input, options);
}

/** `trainSft` from a resolved config. */
export function startSft(resolved: ResolvedRun<typeof sftSchema>, options: TrainerOptions = {}): Promise<TrainingRun> {
  const { config } = resolved;
  return setUpTraining(config, async (opened, freed, world) => {
    sourceOf(config, options);
    const { progress } = options;
    const { model, tokenizer } = await loadForTraining(config, { progress, refuse: refusal(sftSchema, resolved) });
    freed.use(model);
    const teacher = hasTeacher(config)
      ? await openTeacher(config, model, tokenizer, sftTeaching(config, progress))
      : null;
    opened.defer(() => teacher?.dispose());
    const data = await sftTokens(config, tokenizer, options);
    opened.defer(() => data.close());
    const objective =
      teacher === null
        ? sftObjective(model, { allTokens: !config.assistantOnly })
        : distillationObjective(model, teacher, config);
    const { validation } = data;
    const task = batchTask({
      model,
      tokenizer,
      objective,
      steps: new StepBatches(data.train, sftBatching(config)),
      dataFingerprint: data.train.fingerprint,
      heldOutFingerprint: validation?.fingerprint,
      optimizer: { lr: config.lr, weightDecay: config.weightDecay, shard: config.shard },
      world,
      checkpointing: config.gradientCheckpointing,
      ...(validation === undefined ? {} : { evaluate: () => evaluateSft(config, model, objective, validation) }),
    });
    opened.defer(() => task.optimizer.dispose());
    const run = await startRun('train sft', sftSchema, resolved, options.run);
    opened.run = run;
    return trainingParts(run, {
      schema: sftSchema,
      resolved,
      options,
      task,
      model,
      tokenizer,
      judged: sftJudged(config),
      label: 'sft',
      world,
    });
  });
}

async function evaluateSft(config: SftConfig, model: Model, objective: SftObjective, store: TokenStore) {
  const { evalBatchSize: batchSize, evalNumBatches: batches, seed } = config;
  const sample = await evalSample(store, { batchSize, batches, seed: seed + 1 });
  const metrics = await evaluateBatches(model, objective, sample);
  return { ...metrics, perplexity: Math.exp(metrics.nll ?? metrics.loss ?? Number.NaN) };
}

/** A model may be its own teacher, to stay close to its start while it learns text. */
const sftTeaching = (config: SftConfig, progress?: Progress): TeachingOptions => ({
  progress,
  mayBeStudent: config.distillShare < 1,
});

/** The memory and the context length of a planned run's teacher; nothing without a teacher. */
export async function sftTeacherPlan(
  config: SftConfig,
  tokenizer: Tokenizer,
  { model: { dtype, device }, vocabSize, steps }: TrainingPlan,
  progress?: Progress,
): Promise<{ memory: Record<string, number>; positions?: number }> {
  if (!hasTeacher(config)) return { memory: {} };
  const student = { tokenizer, vocabSize, dtype, device };
  const found = await checkTeacher(config, student, sftTeaching(config, progress));
  return { memory: teachingMemory(found, student, steps.tokensPerMicroBatch), positions: found.positions };
}

/** Limits --max-length to the teacher's context, because it reads the same examples. */
async function withinTeacher(config: SftConfig, progress?: Progress): Promise<SftConfig> {
  const { teacher: model } = config;
  if (model === undefined) return config;
  const { maxLength } = await withinPositions({ ...config, model, fromConfig: undefined }, progress);
  return { ...config, maxLength };
}

export function sftBatching(config: SftConfig) {
  const { packing, batchSize, gradAccum, maxLength, epochs, seed, maxSteps } = config;
  const tokenBudget = config.tokenBudget ?? (packing ? batchSize * maxLength : undefined);
  return { batchSize, tokenBudget, gradAccum, epochs, seed, maxSteps };
}

/** The tokens of training and held-out data. */
export async function sftTokens(asked: SftConfig, tokenizer: Tokenizer, options: TrainerOptions): Promise<TokenSets> {
  const config = await withinTeacher(await withinPositions(asked, options.progress), options.progress);
  const shape = config.shape === 'auto' ? undefined : (config.shape as Shape);
  const sets = await openForTraining(config, {
    given: options,
    progress: options.progress,
    ...(shape ? { shape } : {}),
  });
  const found = await sets.train.shape();
  if (found !== 'messages' && found !== 'text') {
    throw new UserError(
      `SFT wants chats or plain text, and the dataset looks like "${found}". Say --shape messages (or text) to read it as such.`,
    );
  }
  const { progress, signal, cache } = options;
  const encoding = { maxLength: config.maxLength, format: config.promptFormat, progress, signal, cache };
  return tokenSets(sets, tokenizer, encoding);
}
