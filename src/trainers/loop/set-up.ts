/**
 * Sets up a training and frees what it uses; shared by all trainers.
 *
 *     return setUpTraining(config, async (opened, freed) => {
 *       const { model, tokenizer } = await loadForTraining(config);
 *       freed.use(model);
 *       const data = await openData(config);
 *       opened.defer(() => data.close());
 *       …
 *       opened.run = await startRun('train sft', schema, resolved);
 *       return await trainingParts(opened.run, { schema, resolved, options, task, … });
 *     });
 */
import type { z } from 'zod';
import { sizeText } from '../../dist/shard/room.ts';
import { joinWorld, type World } from '../../dist/world.ts';
import type { Model } from '../../models/index.ts';
import { type ConfigSchema, fieldMeta, kebabCase, type ResolvedRun, type Run, savedConfig } from '../../runs/index.ts';
import { shown } from '../../runs/same-options.ts';
import { counted, spelled } from '../../spelling.ts';
import type { Tokenizer } from '../../text/index.ts';
import { type MemoryConfig, memoryNeeds } from '../memory-needs.ts';
import { explainOutOfMemory, isOutOfMemory } from '../out-of-memory.ts';
import { tellStepNotes } from '../step-notes.ts';
import { checkHeldOut, type Judged } from './best.ts';
import { loopOptions, type TrainingConfig } from './config.ts';
import { trainLoop } from './loop.ts';
import { type PlaceOptions, takePlace } from './same-data.ts';
import type { TrainTask } from './task.ts';
import { type TrainerOptions, type TrainingParts, TrainingRun } from './training-run.ts';

/**
 * Everything that a training opened, including its run. If the set-up fails after the run has begun, the run ends as
 * failed.
 */
export class Opened extends AsyncDisposableStack {
  run: Run | undefined;
}

/**
 * `opened` is closed when training ends or the set-up fails. `freed` holds what outlives the training (the model) and
 * is freed here only if the set-up fails.
 */
export async function setUpTraining(
  config: MemoryConfig,
  setUp: (opened: Opened, freed: DisposableStack, world: World) => Promise<TrainingParts>,
): Promise<TrainingRun> {
  const opened = new Opened();
  const freed = new DisposableStack();
  const world = await joinWorld();
  // Rank 0 opens and locks the run only after every rank has looked at what exists.
  await world.meet('set-up');
  try {
    const parts = await setUp(opened, freed, world);
    const explain = async (error: Error) => {
      const explained = await inWords(error, 'training', config);
      await world.fail(explained);
      return explained;
    };
    return new TrainingRun(parts, { close: () => opened.disposeAsync(), explain });
  } catch (error) {
    await opened.disposeAsync();
    freed.dispose();
    const explained = await inWords(error as Error, 'loading models and data', config);
    await opened.run?.finish('failed', explained.message).catch(() => {});
    await world.fail(explained);
    throw explained;
  }
}

/** Explains an out-of-memory error and suggests remedies. Returns any other error unchanged. */
async function inWords(error: Error, doing: string, config: MemoryConfig): Promise<Error> {
  if (!isOutOfMemory(error)) return error;
  // The plan needs hardly any memory. If it fails, the original error must still be shown.
  const needs = await memoryNeeds(config).catch(() => undefined);
  return explainOutOfMemory(error, doing, needs);
}

export interface TrainingSetup<S extends ConfigSchema>
  extends Pick<TrainingParts, 'after'>,
    Pick<PlaceOptions, 'named'> {
  schema: S;
  resolved: ResolvedRun<S>;
  options: TrainerOptions;
  task: TrainTask;
  model: Model;
  tokenizer: Tokenizer;
  /** The metrics of its evaluations. */
  judged: Judged;
  /** The label of the progress bar. */
  label: string;
  world: World;
}

/** The loop over a task, with the options of its config. */
export async function trainingParts<S extends ConfigSchema>(run: Run, setup: TrainingSetup<S>): Promise<TrainingParts> {
  const { schema, resolved, options, task, model, tokenizer, judged, label, after, named, world } = setup;
  const { progress } = options;
  const config = resolved.config as unknown as TrainingConfig;
  checkHeldOut(config, task.evaluate !== undefined, resolved.sources);
  for (const note of [...worldNotes(config, world), ...weightNotes(task)]) progress?.start('ranks').done(spelled(note));
  for (const note of heldOutNotes(schema, resolved)) progress?.start('held-out examples').done(spelled(note));
  // Before the steps are counted, because the number left depends on the current batch size.
  const { allowChangedData } = config;
  const from = resolved.resume?.path;
  const place = from === undefined ? undefined : await takePlace(from, task, { allowChangedData, progress, named });
  tellStepNotes(resolved.config, task, progress);
  run.planned(task.totalSteps);
  return {
    run,
    model,
    tokenizer,
    totalSteps: task.totalSteps,
    onStep: options.onStep,
    // Only rank 0 writes reports.
    after: world.isFirst ? after : undefined,
    steps: trainLoop(task, {
      ...loopOptions(config, task.totalSteps, judged),
      ...(world.isFirst ? { run } : {}),
      world,
      exact: config.exact,
      seed: config.seed,
      config: savedConfig(schema, resolved.config),
      resumeFrom: from,
      place,
      checkpointName: options.checkpointName,
      worksAhead: options.worksAhead,
      signal: options.signal,
      progress,
      label,
    }),
  };
}

/**
 * Notes about the number of processes that a user may not expect. The micro-batches of a policy are cut to fit any
 * number.
 */
function worldNotes(config: TrainingConfig, { size }: World): string[] {
  const { shard, gradAccum } = config;
  if (size === 1)
    return shard === 'none' ? [] : [`--shard ${shard}: one process has nobody to share with; see attune launch`];
  if (size <= gradAccum || 'microBatchTokens' in config) return [];
  return [
    `${size} processes share ${counted(gradAccum, 'micro-batch')} a step: --grad-accum ${size} or more, with a smaller --batch-size, uses all`,
  ];
}

/** A resumed run may evaluate on another sample of the held-out examples, which puts a jump in its curve. */
function heldOutNotes<S extends ConfigSchema>(schema: S, { changed = [], resume }: ResolvedRun<S>): string[] {
  const picks = changed.filter(({ name }) => fieldMeta(schema.shape[name] as z.ZodType).picksHeldOut);
  if (picks.length === 0) return [];
  const told = picks.map(({ name, was, is }) => `--${kebabCase(name)} ${shown(is)} (was ${shown(was)})`);
  return [
    `with ${told.join(', ')}, evaluations after step ${resume?.step ?? 0} are of other held-out examples than those before: compare, and choose a best model, among each alone`,
  ];
}

/** The memory that sharded weights take on each rank. */
function weightNotes({ optimizer: { weights } }: TrainTask): string[] {
  if (!weights) return [];
  const { whole, inUpdate } = weights.bytes;
  return [
    `--shard full: a rank holds ${sizeText(inUpdate)} of weights while it updates, and ${sizeText(whole)} while it samples, evaluates or saves`,
  ];
}
