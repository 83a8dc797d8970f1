/**
 * Plans a pipeline without running it: each model's faults, steps and memory. Reads tokenizers, configs and data, but
 * not weights.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { plannedRanks } from '../../dist/place.ts';
import { AttuneError, UserError } from '../../errors.ts';
import { ConfigError, checkWandb, listCheckpoints, type RunInfo, readJson, resolveConfig } from '../../runs/index.ts';
import { deletion } from '../../runs/start-over.ts';
import { cudaCount } from '../../tensor/index.ts';
import type { TrainingPlan } from '../../trainers/batches/plan.ts';
import type { TrainerOptions } from '../../trainers/loop/training-run.ts';
import { modelPlan } from '../../trainers/model-plan.ts';
import { configuredLoss, preferenceSchema } from '../../trainers/preference/config.ts';
import { openPreferences, preferencePlan } from '../../trainers/preference/data.ts';
import { openForTraining } from '../../trainers/setup.ts';
import { type PipelineConfig, type PipelineModel, preferenceInput } from './config.ts';

/** What a pipeline would do for one model. */
export interface ModelPlan {
  name: string;
  model: string;
  folder: string;
  /** Reasons why it cannot be trained. */
  faults: string[];
  /** Remarks that do not prevent training. */
  notes: string[];
  /** Model, memory, data and steps, if they could be determined. */
  training?: TrainingPlan;
}

export interface PipelinePlanOptions extends Pick<TrainerOptions, 'progress' | 'signal' | 'cache'> {
  resume?: boolean;
}

/** Faults, steps and memory of every model of a pipeline, without training. */
export async function planPipeline(config: PipelineConfig, options: PipelinePlanOptions = {}): Promise<ModelPlan[]> {
  const plans: ModelPlan[] = [];
  for (const model of config.models) plans.push(await planModel(config, model, options));
  return plans;
}

async function planModel(
  config: PipelineConfig,
  model: PipelineModel,
  options: PipelinePlanOptions = {},
): Promise<ModelPlan> {
  const folder = join(config.training.outputDir, model.name);
  const plan: ModelPlan = { name: model.name, model: model.huggingfaceId, folder, faults: [], notes: notesOn(model) };
  const attempt = async <T>(body: () => T | Promise<T>): Promise<T | undefined> => {
    try {
      return await body();
    } catch (error) {
      if (!(error instanceof AttuneError)) throw error;
      const messages =
        error instanceof ConfigError ? error.faults.map((fault) => `${fault.path}: ${fault.message}`) : [error.message];
      // a missing model is reported once for its tokenizer and once for its weights
      for (const message of messages) if (!plan.faults.includes(message)) plan.faults.push(message);
      return undefined;
    }
  };
  const resuming = await attempt(() => startOf(config, model, options.resume));
  if (resuming?.kind === 'finished') plan.notes.push(nothingLeft);
  if (resuming?.kind === 'resume') plan.notes.push(`goes on after step ${resuming.step}`);
  const device = await attempt(() => pipelineDevice(config));
  const input = preferenceInput(config, model, device ?? 'cpu');
  const preference = await attempt(() => resolveConfig(preferenceSchema, { flags: input }).config);
  if (preference === undefined) return plan;
  if (preference.reportTo.includes('wandb')) await attempt(() => checkWandb());
  const loss = await attempt(() => configuredLoss(preference));
  if (loss === undefined) return plan;
  const data = await attempt(() => openPreferences(preference, loss.algorithm, options));
  const planning = { progress: options.progress, ranks: pipelineRanks(config) };
  if (data === undefined) {
    await attempt(() => modelPlan(preference, 0, planning));
    const shape = loss.algorithm.paired ? 'preference' : 'unpaired';
    await attempt(() => openForTraining(preference, { shape, progress: options.progress }));
  } else plan.training = await attempt(() => preferencePlan(preference, loss.algorithm, data, planning));
  await data?.close();
  return plan;
}

function notesOn(model: PipelineModel): string[] {
  if (!model.trustRemoteCode) return [];
  return [
    'trust_remote_code has nothing to trust: attune brings every family’s code itself and runs none from the hub',
  ];
}

/** The device named by `gpu.device_ids`. A machine without a GPU trains on its CPU. */
export function pipelineDevice({ gpu }: PipelineConfig): string {
  const [id] = gpu.deviceIds;
  const count = cudaCount();
  // With several ranks, each sees only its own GPU.
  if (gpu.useDdp && count > 0) return 'cuda:0';
  if (id === undefined || count === 0) return 'cpu';
  if (id >= count)
    throw new UserError(`gpu.device_ids: there is no GPU ${id}; this machine has ${count} (0 to ${count - 1}).`);
  return `cuda:${id}`;
}

/** As many ranks as the launcher started or, without one, as many as `gpu.use_ddp` starts. */
function pipelineRanks({ gpu }: PipelineConfig): number {
  const launched = plannedRanks(process.env);
  return gpu.useDdp && launched === 1 ? Math.max(1, gpu.deviceIds.length) : launched;
}

export const nothingLeft =
  'finished already; nothing is left to do (a higher training.max_steps or num_epochs trains on)';

export type ModelStart = { kind: 'fresh' } | { kind: 'finished' } | { kind: 'resume'; step: number; from: string };

/** Whether the pipeline asks for more training than a finished run had. */
function asksForMore({ training }: PipelineConfig, folder: string): boolean {
  const had = readJson<{ epochs?: number; max_steps?: number }>(join(folder, 'config.json'));
  if (had === undefined) return false;
  const wasCut = had.max_steps !== undefined;
  const stepsGrow = wasCut && (training.maxSteps ?? Number.POSITIVE_INFINITY) > (had.max_steps ?? 0);
  return stepsGrow || (!wasCut && training.maxSteps === undefined && training.numEpochs > (had.epochs ?? 0));
}

/** Whether a model starts fresh, is resumed or is finished. An existing run is never overwritten. */
export function startOf(config: PipelineConfig, model: PipelineModel, resume = false): ModelStart {
  const folder = join(config.training.outputDir, model.name);
  const asked = config.finetuning.resumeFromCheckpoint;
  const given = typeof asked === 'string' && asked !== 'latest' ? asked : undefined;
  const newest = listCheckpoints(folder).at(-1);
  const finished =
    readJson<RunInfo>(join(folder, 'run.json'))?.status === 'finished' && existsSync(join(folder, 'final'));
  if (resume || asked) {
    if (finished && !asksForMore(config, folder)) return { kind: 'finished' };
    if (finished && newest === undefined)
      throw new UserError(
        `${folder} is finished and holds no checkpoint to train on from. Choose another --output-dir, with ${join(folder, 'final')} as huggingface_id.`,
      );
    if (given !== undefined) return { kind: 'resume', step: Number(/(\d+)\/?$/.exec(given)?.[1] ?? 0), from: given };
    return newest === undefined ? { kind: 'fresh' } : { kind: 'resume', step: newest.step, from: folder };
  }
  if (!finished && newest === undefined) return { kind: 'fresh' };
  throw new UserError(
    `${folder} holds a run already. Go on with --resume, choose another --output-dir, or delete it with: ${deletion(folder)}`,
  );
}
