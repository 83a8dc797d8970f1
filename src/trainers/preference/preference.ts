/**
 * Direct alignment: one trainer for every preference loss, on pairs or on single labelled responses.
 *
 *     const run = await trainPreference({ model: './base', dataset: 'pairs.jsonl', loss: 'dpo', beta: 0.1, lora: true });
 *     for await (const step of run) console.log(step.step, step.metrics['train/accuracy']);
 */

import { type PreferenceLoss, useLoss } from '../../algorithms/index.ts';
import { call, checkArguments } from '../../arguments.ts';
import { type Batch, packBatch, type TokenStore } from '../../data/index.ts';
import { makeOptimizer, type WorldAdamW } from '../../dist/shard/optimizer.ts';
import type { World } from '../../dist/world.ts';
import type { MicroBatchLimits } from '../../models/decoder/responses.ts';
import type { Model } from '../../models/index.ts';
import { Random } from '../../random.ts';
import { type ResolvedRun, refusal } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { StepBatches, type StepState } from '../batches/step-batches.ts';
import type { TokenSets } from '../batches/token-sets.ts';
import { startRun } from '../loop/config.ts';
import { setUpTraining, trainingParts } from '../loop/set-up.ts';
import type { TrainTask } from '../loop/task.ts';
import { type StepOf, type Training, trainingOf } from '../loop/training.ts';
import type { ProgramConfig, TrainerOptions, TrainingRun } from '../loop/training-run.ts';
import { wholeWeights } from '../loop/whole-weights.ts';
import { type ReferenceTable, referenceTable } from '../reference/cache.ts';
import { openReference } from '../reference/open.ts';
import { checkQuantised } from '../reference/options.ts';
import type { Reference } from '../reference/reference.ts';
import { hasDropout, loadForTraining, restoreForTraining, saveForTraining } from '../setup.ts';
import { configuredLoss, type PreferenceConfig, type PreferenceConfigInput, preferenceSchema } from './config.ts';
import { noDropout, openPreferences } from './data.ts';
import { type PreferenceExample, PreferenceObjective, preferenceJudged, responseLimits } from './objective.ts';
import { type Sample, type SampleOptions, SampleResponses } from './samples.ts';

/** Options of `trainPreference` that only a program can pass. */
export interface PreferenceTrainerOptions extends TrainerOptions {
  /** Called with sampled responses every `sample_steps` steps. */
  onSamples?: (samples: Sample[]) => void | Promise<void>;
}

/** A step of preference training. */
export type PreferenceStep = StepOf<'accuracy' | 'margin', 'loss' | 'accuracy' | 'margin'>;

/** Trains a policy on preferences; `loss` is a name or your own loss (`definePreferenceLoss`). */
export function trainPreference(
  input: Omit<ProgramConfig<PreferenceConfigInput>, 'loss'> & { loss?: string | PreferenceLoss },
  options: PreferenceTrainerOptions = {},
): Training<PreferenceStep> {
  return trainingOf(
    { command: 'train preference', schema: preferenceSchema, start: startPreference, named, own: ['onSamples'], check },
    input,
    options,
  );
}

function check({ onSamples }: PreferenceTrainerOptions): void {
  checkArguments('trainPreference', { onSamples }, { onSamples: call });
}

function named(flags: Record<string, unknown>): void {
  if (typeof flags.loss === 'object') flags.loss = useLoss(flags.loss as PreferenceLoss);
}

/** `trainPreference` from a resolved config. */
export function startPreference(
  resolved: ResolvedRun<typeof preferenceSchema>,
  options: PreferenceTrainerOptions = {},
): Promise<TrainingRun> {
  const { config } = resolved;
  const { progress, signal } = options;
  return setUpTraining(config, async (opened, freed, world) => {
    const { algorithm, options: lossOptions } = configuredLoss(config);
    const data = await openPreferences(config, algorithm, options);
    opened.defer(() => data.close());
    const { model, tokenizer } = await loadForTraining(config, {
      progress,
      refuse: refusal(preferenceSchema, resolved),
    });
    freed.use(model);
    if (!hasDropout(model)) refusal(preferenceSchema, resolved)(['dropout'], noDropout);
    if (!config.dropout) silenceDropout(model);
    checkQuantised(config, model.adapters !== null);
    const opening = algorithm.needsReference ? await openReference({ config, policy: model, progress }) : null;
    const { reference, known } = await precomputeReference(opening, data, config, algorithm, options);
    opened.defer(() => reference?.dispose());
    const limits = limitsOf(config);
    const objective = new PreferenceObjective({
      model,
      algorithm,
      options: lossOptions,
      reference,
      limits,
      evalLimits: config.evalBatchSize === undefined ? limits : { examples: config.evalBatchSize },
      maxLength: Math.min(config.maxLength, model.decoder.spec.maxPositions),
      checkpointing: config.gradientCheckpointing,
    });
    opened.defer(() => objective.dispose());
    const held = await heldOut(objective, data.validation, config, known?.validation);
    const task = preferenceTask({
      config,
      world,
      model,
      tokenizer,
      objective,
      reference,
      train: data.train,
      validation: data.validation,
      held,
      known,
    });
    opened.defer(() => task.optimizer.dispose());
    const run = await startRun('train preference', preferenceSchema, resolved, options.run);
    opened.run = run;
    const samples = new SampleResponses(model, tokenizer, promptsOf(held), sampleOptions(config));
    const setup = {
      schema: preferenceSchema,
      resolved,
      options,
      task,
      model,
      tokenizer,
      judged: preferenceJudged,
      label: algorithm.name,
      world,
    };
    return {
      ...(await trainingParts(run, setup)),
      onStep: async (step) => {
        if (samples.isDue(step.step)) await wholeWeights(task);
        if (world.isFirst && samples.isDue(step.step)) {
          const taken = await samples.take(step.step, run, signal);
          await options.onSamples?.(taken);
        }
        await options.onStep?.(step);
      },
    };
  });
}

const sampleOptions = (config: PreferenceConfig): SampleOptions => ({
  every: config.sampleSteps,
  count: config.sampleCount,
  order: config.sampleOrder,
  maxNewTokens: config.sampleMaxNewTokens,
  temperature: config.sampleTemperature,
  seed: config.seed,
});

function limitsOf(config: Pick<PreferenceConfig, 'batchSize' | 'tokenBudget'>): MicroBatchLimits {
  return config.tokenBudget === undefined ? { examples: config.batchSize } : { tokens: config.tokenBudget };
}

interface KnownReference {
  train: ReferenceTable;
  validation: ReferenceTable | undefined;
}

/**
 * With `precomputeRef`, computes all reference log-probs before training. The reference is then freed, unless the loss
 * needs it at every step.
 */
async function precomputeReference(
  reference: Reference | null,
  data: TokenSets,
  config: PreferenceConfig,
  algorithm: PreferenceLoss,
  { progress, signal }: TrainerOptions,
): Promise<{ reference: Reference | null; known?: KnownReference }> {
  if (reference === null || !config.precomputeRef) return { reference };
  try {
    const limits = responseLimits(limitsOf(config));
    const tableOf = async (store: TokenStore) =>
      (await referenceTable(store, reference, { limits, progress, signal })).table;
    const known = { train: await tableOf(data.train), validation: data.validation && (await tableOf(data.validation)) };
    if (algorithm.baseline === 'mismatched') return { reference, known };
    reference.dispose();
    return { reference: null, known };
  } catch (error) {
    reference.dispose();
    throw error;
  }
}

async function heldOut(
  objective: PreferenceObjective,
  store: TokenStore | undefined,
  config: PreferenceConfig,
  known?: ReferenceTable,
): Promise<PreferenceExample[]> {
  if (store === undefined) return [];
  const order = new Random(config.seed).permutation(store.length).subarray(0, config.evalSubsetSize).sort();
  return objective.examples(packBatch(await store.records(order)), known);
}

/** The distinct prompts of the held-out examples, in order. */
function promptsOf(examples: readonly PreferenceExample[]): Int32Array[] {
  const prompts = new Map<string, Int32Array>();
  for (const [response] of examples) {
    const prompt = response?.ids.subarray(0, response.promptLength);
    if (prompt !== undefined && prompt.length > 0) prompts.set(prompt.join(), prompt);
  }
  return [...prompts.values()];
}

interface TaskParts {
  config: PreferenceConfig;
  world: World;
  model: Model;
  tokenizer: Tokenizer;
  objective: PreferenceObjective;
  reference: Reference | null;
  train: TokenStore;
  validation: TokenStore | undefined;
  held: readonly PreferenceExample[];
  known?: KnownReference;
}

type Task = TrainTask & { readonly optimizer: WorldAdamW };

function preferenceTask(parts: TaskParts): Task {
  const { config, world, model, tokenizer, objective, reference, train, validation, held, known } = parts;
  const { batchSize, gradAccum, tokenBudget, epochs, seed, maxSteps, refModelUpdateFreq } = config;
  const steps = new StepBatches(train, { batchSize, gradAccum, tokenBudget, epochs, seed, maxSteps });
  const made = new WeakMap<readonly Batch[], PreferenceExample[][]>();
  const examplesOf = (batches: readonly Batch[]) => {
    const examples = made.get(batches) ?? batches.map((batch) => objective.examples(batch, known?.train));
    made.set(batches, examples);
    return examples;
  };
  const moves = (step: number) => refModelUpdateFreq !== undefined && step > 1 && (step - 1) % refModelUpdateFreq === 0;

  return {
    optimizer: makeOptimizer(
      model.trainable(),
      { lr: config.lr, weightDecay: config.weightDecay },
      { world, shard: config.shard, base: model.decoder.tensors() },
    ),
    decoder: model.decoder,
    lossTellsFit: true,
    get limits() {
      return steps.limits;
    },
    get totalSteps() {
      return steps.totalSteps;
    },
    dataFingerprint: train.fingerprint,
    heldOutFingerprint: validation?.fingerprint,
    async step(number, { update, wholeWeights }) {
      const started = performance.now();
      if (objective.scoresPolicy || moves(number)) await wholeWeights();
      if (moves(number)) {
        reference?.update();
        for (const response of held.flat()) response.lpRef = undefined;
      }
      const batches = await steps.next();
      const examples = examplesOf(batches);
      const totals = await objective.totals(examples.flat());
      const cost = (part: readonly PreferenceExample[]) => part.flat().reduce((sum, { ids }) => sum + ids.length, 0);
      // A fixed reference does not depend on the update, so it can start on the next step's examples. A moving one
      // cannot.
      const ahead = async () => {
        const next = number < steps.totalSteps && !moves(number + 1) ? examplesOf(await steps.peek()) : [];
        return () => objective.startReference(next.flat());
      };
      await update(examples, (part) => objective.backward(part, totals), {
        ...{ cost, ahead },
        decisions: objective.decisions(totals),
      });
      const tokens = batches.reduce((sum, batch) => sum + batch.tokens, 0);
      return {
        examples: batches.reduce((sum, batch) => sum + batch.examples, 0),
        epoch: steps.epoch,
        metrics: { tokens_per_second: (1000 * tokens) / (performance.now() - started) },
      };
    },
    ...(held.length === 0
      ? {}
      : { evaluate: async () => ({ ...(await objective.evaluate(held)), examples: held.length }) }),
    saveModel: (folder) => saveForTraining(model, tokenizer, folder),
    loadModel: (folder) => restoreForTraining(model, folder),
    saveExtras: (folder) => reference?.save(folder),
    loadExtras: (folder) => reference?.load(folder),
    state: () => steps.state,
    restore: (state) => steps.restore(state as StepState),
  };
}

/** Turns off the model's own dropout, so that policy and reference start equal. Adapters keep theirs. */
function silenceDropout(model: Model): void {
  const { dropout, attention } = model.decoder.spec;
  Object.assign(
    dropout,
    { residual: 0, embedding: 0 },
    dropout.attentionOutput === undefined ? {} : { attentionOutput: 0 },
  );
  Object.assign(attention, { dropout: 0 });
}
