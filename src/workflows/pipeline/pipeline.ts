/**
 * Trains many models by one recipe, one after another. A model that fails is reported and the others continue.
 *
 *     const { config } = readPipeline('pipeline.yaml');
 *     const outcomes = await trainPipeline(config, { onStep: (model, step) => console.log(model.name, step.step) });
 *
 *     {output_dir}/{model}/checkpoint-{step}/  final/  best_model/  metrics.jsonl …      {logging_dir}/{model}/  TensorBoard
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { joinWorld } from '../../dist/world.ts';
import { UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import type { Progress } from '../../progress.ts';
import { type RunInfo, readJson, redact, resolveRun } from '../../runs/index.ts';
import type { TrainResult, TrainStep } from '../../trainers/loop/loop.ts';
import { preferenceSchema } from '../../trainers/preference/config.ts';
import { startPreference } from '../../trainers/preference/preference.ts';
import type { Sample } from '../../trainers/preference/samples.ts';
import { type PipelineConfig, type PipelineModel, preferenceInput } from './config.ts';
import { type ModelStart, pipelineDevice, startOf } from './plan.ts';

/** Which models of a pipeline to train, and callbacks. */
export interface PipelineOptions {
  /** Trains only this model, counted from 0; its failure is thrown. */
  modelIndex?: number;
  /** Resumes each model from its newest checkpoint. Finished models are skipped. */
  resume?: boolean;
  signal?: AbortSignal;
  progress?: Progress;
  cache?: string | false;
  /** Draws `training_curves.png` for each model; default true. */
  curves?: boolean;
  onModel?: (model: PipelineModel, about: { folder: string; totalSteps: number; resumedAt?: number }) => void;
  onStep?: (model: PipelineModel, step: TrainStep) => void;
  onSamples?: (model: PipelineModel, samples: Sample[]) => void;
  onOutcome?: (outcome: ModelOutcome) => void;
}

/** How the training of one model of a pipeline ended. */
export interface ModelOutcome {
  name: string;
  /** `skipped`: it had already finished. */
  status: TrainResult['ended'] | 'failed' | 'skipped';
  folder: string;
  step?: number;
  best?: TrainResult['best'];
  /** The final model, or the checkpoint to resume from. */
  checkpoint?: string;
  error?: Error;
  seconds: number;
}

const resultsFile = 'pipeline_results.json';

/** Trains the models of a pipeline, one after another. */
export async function trainPipeline(config: PipelineConfig, options: PipelineOptions = {}): Promise<ModelOutcome[]> {
  const { modelIndex, signal } = options;
  const world = await joinWorld();
  const outcomes: ModelOutcome[] = [];
  const models = chosenModels(config, modelIndex);
  if (world.isFirst) refuseWhereNoneStarts(config, models, options.resume);
  for (const model of models) {
    if (signal?.aborted) break;
    const started = performance.now();
    const seconds = () => (performance.now() - started) / 1000;
    let outcome: ModelOutcome;
    try {
      outcome = { ...(await trainOne(config, model, options)), seconds: seconds() };
    } catch (error) {
      const about = { name: model.name, folder: join(config.training.outputDir, model.name), seconds: seconds() };
      // A training stopped before its first step throws the signal's abort reason.
      if (signal?.aborted && error === signal.reason) outcome = { ...about, status: 'interrupted' };
      // Ranks that continued with different models would wait for each other forever.
      else if (modelIndex !== undefined || world.size > 1) throw error;
      else outcome = { ...about, status: 'failed', error: error as Error };
    }
    outcomes.push(outcome);
    options.onOutcome?.(outcome);
    if (world.isFirst) writeResults(config, outcome);
  }
  return outcomes;
}

function chosenModels({ models }: PipelineConfig, index: number | undefined): PipelineModel[] {
  if (index === undefined) return models;
  const model = models[index];
  if (model !== undefined) return [model];
  const list = models.map(({ name }, i) => `${i} ${name}`).join(', ');
  throw new UserError(`There is no model ${index}: they are counted from 0 (${list}).`);
}

/** If all models are refused, as when a finished pipeline is started again, nothing runs and no result is written. */
function refuseWhereNoneStarts(config: PipelineConfig, models: readonly PipelineModel[], resume?: boolean): void {
  const faults: string[] = [];
  for (const model of models) {
    try {
      startOf(config, model, resume);
      return;
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      faults.push(error.message);
    }
  }
  if (faults.length > 0) throw new UserError(faults.join('\n'));
}

async function trainOne(
  config: PipelineConfig,
  model: PipelineModel,
  options: PipelineOptions,
): Promise<Omit<ModelOutcome, 'seconds'>> {
  const { name } = model;
  const folder = join(config.training.outputDir, name);
  const world = await joinWorld();
  const start = await world.share(world.isFirst ? startOf(config, model, options.resume) : ({} as ModelStart));
  if (start.kind === 'finished') return { name, status: 'skipped', folder, checkpoint: join(folder, 'final') };
  const input = preferenceInput(config, model, pipelineDevice(config));
  const resumeFrom = start.kind === 'resume' ? start.from : undefined;
  const resolved = await resolveRun(preferenceSchema, { ...input, resumeFrom });
  makeFolder(folder);
  using run = await startPreference(resolved, {
    signal: options.signal,
    progress: options.progress,
    cache: options.cache,
    onSamples: (samples) => options.onSamples?.(model, samples),
    onStep: (step) => options.onStep?.(model, step),
    checkpointName: (step) => `checkpoint-${step}`,
    run: {
      command: 'train pipeline',
      existing: 'reuse',
      curves: options.curves,
      // removes metrics of an earlier attempt that left no checkpoint
      ...(start.kind === 'fresh' ? { resume: { run: folder, step: 0 } } : {}),
    },
  });
  options.onModel?.(model, {
    folder,
    totalSteps: run.totalSteps,
    ...(start.kind === 'resume' ? { resumedAt: start.step } : {}),
  });
  const { ended, step, best, checkpoint } = await run.finish();
  return { name, status: ended, folder, step, best, checkpoint };
}

type ResultRow = Omit<ModelOutcome, 'error'> & { error?: string; previous?: Omit<ResultRow, 'previous'> };

/**
 * The result row of a finished model. A later attempt may have failed, or another command may have finished the run, so
 * the run's own files say what it reached.
 */
function finishedRow(earlier: ResultRow, { name, folder, checkpoint }: ModelOutcome): ResultRow {
  const isFinished = ({ status }: { status: ResultRow['status'] }) =>
    status === 'finished' || status === 'early-stopping';
  const { previous } = earlier;
  if (isFinished(earlier)) return earlier;
  const run = readJson<RunInfo>(join(folder, 'run.json'));
  if (previous !== undefined && isFinished(previous) && previous.step === (run?.step ?? previous.step)) return previous;
  const seconds = run?.ended === undefined ? 0 : (Date.parse(run.ended) - Date.parse(run.created)) / 1000;
  return { name, status: 'finished', folder, step: run?.step, checkpoint, seconds };
}

/** Whether the folder holds a finished run. A failure that did not change it was a refusal to start. */
const holdsFinished = (folder: string): boolean =>
  readJson<RunInfo>(join(folder, 'run.json'))?.status === 'finished' && existsSync(join(folder, 'final'));

/**
 * The latest result of every model trained in this folder, and the one before it. A model that was skipped, or refused
 * because it is finished, keeps its results.
 */
function writeResults(config: PipelineConfig, outcome: ModelOutcome): void {
  const { outputDir } = config.training;
  makeFolder(outputDir);
  const path = join(outputDir, resultsFile);
  const found = readJson<ResultRow[]>(path);
  const rows = new Map((Array.isArray(found) ? found : []).map((row) => [row.name, row]));
  const earlier = rows.get(outcome.name);
  const { error, ...told } = outcome;
  const isLeftAlone = outcome.status === 'skipped' || (outcome.status === 'failed' && holdsFinished(outcome.folder));
  if (isLeftAlone && earlier !== undefined) {
    rows.set(outcome.name, finishedRow(earlier, { ...outcome, checkpoint: join(outcome.folder, 'final') }));
  } else {
    const { previous: older, ...before } = earlier ?? {};
    // A failure without a result keeps the latest one that had a result.
    const previous = earlier?.step === undefined ? older : (before as ResultRow);
    rows.set(outcome.name, {
      ...told,
      ...(error ? { error: redact(error.message) } : {}),
      ...(previous ? { previous } : {}),
    });
  }
  writeFileSync(path, `${JSON.stringify([...rows.values()], null, 2)}\n`);
}
