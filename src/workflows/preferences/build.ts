/**
 * Training data from a policy's own responses: preference pairs, graded solutions or labelled steps. Samples responses
 * to each prompt, scores them, and writes rows for a trainer (recipes/iterated-preferences.sh repeats this with pairs).
 *
 *     await buildPreferences({ model: './policy', task: 'chain_sum', prompts: 500, samples: 8, output: 'pairs.jsonl' });
 *     await buildPreferences({ model: './policy', dataset: 'openai/gsm8k', subset: 'main', kind: 'graded', output: 'orm.jsonl' });
 */
import { closeSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { z } from 'zod';
import type { DatasetSpec } from '../../data/index.ts';
import { AttuneError } from '../../errors.ts';
import { refuseExisting } from '../../existing-file.ts';
import { makeFolder } from '../../folder.ts';
import { deviceOf, dtypeOf, loadModel, loadTokenizer, type Model, Sampler } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { datasetPrompts } from '../../rollouts/dataset-prompts.ts';
import { promptWriter } from '../../rollouts/opening.ts';
import type { PolicyPrompt, PromptWriter } from '../../rollouts/prompts.ts';
import { rolloutSeeds, sampleRollouts } from '../../rollouts/rollout.ts';
import { configuredScorer } from '../../rollouts/scorer.ts';
import { TaskPrompts } from '../../rollouts/task-prompts.ts';
import { resolveInput } from '../../runs/index.ts';
import type { Device } from '../../tensor/index.ts';
import { rewardModelAsPolicy } from '../../trainers/policy-model.ts';
import { type BuildPreferencesConfig, buildPreferencesSchema, checkBuild, type RowKind } from './config.ts';
import { type GradedSummary, gradedRows } from './graded.ts';
import { type PairsSummary, pairRows } from './pairs.ts';
import { checkVerifiable, type RowContext, type RowMaker } from './rows.ts';
import { type StepsSummary, stepRows } from './steps.ts';

export interface BuildPreferencesOptions {
  /** In-memory prompts instead of a dataset's name. */
  dataset?: DatasetSpec;
  /** Your own scorers, added to those of the config. */
  scorers?: readonly RewardScorer[];
  progress?: Progress;
  signal?: AbortSignal;
}

type RowSummary = PairsSummary | GradedSummary | StepsSummary;

interface WrittenFile {
  /** The file. A stopped build leaves `….part` beside it with the rows made so far. */
  output: string;
  stopped: boolean;
  prompts: number;
}

/** The file written, with counts of its rows by kind. */
export type BuiltPreferences<Kind extends RowKind = 'pairs'> = WrittenFile & Extract<RowSummary, { kind: Kind }>;

/** The options of `buildPreferences`. */
export type BuildPreferencesInput<Kind extends RowKind = 'pairs'> = Omit<
  z.input<typeof buildPreferencesSchema>,
  'kind'
> & { kind?: Kind };

/** Samples and judges responses to prompts, and writes training data to a file. Throws if no prompt gives a pair. */
export async function buildPreferences<Kind extends RowKind = 'pairs'>(
  given: BuildPreferencesInput<Kind>,
  options: BuildPreferencesOptions = {},
): Promise<BuiltPreferences<Kind>> {
  const config = resolveInput(buildPreferencesSchema, given);
  checkBuild(config, options.dataset !== undefined);
  refuseExisting('--output', config.output, config);
  const { progress } = options;
  const device = deviceOf(config.device);
  const tokenizer = await loadTokenizer(config, progress);
  const prompts = await choosePrompts(config, promptWriter(config, tokenizer), options);
  using opened = new DisposableStack();
  const makerOf = await openRows(config, { device, prompts, extra: options.scorers }, opened);
  using model: Model = await loadModel(config.model, { dtype: dtypeOf(config.dtype, device), device, progress });
  if (model.head !== null) throw await rewardModelAsPolicy(config.model);
  using sampler = new Sampler(model.train(false));
  const context = { config, prompts, sampler, tokenizer };
  return (await writeRows(context, makerOf(context), options)) as BuiltPreferences<Kind>;
}

type Maker = RowMaker<RowSummary>;

/** Opens the row maker. Opens rewards, and refuses prompts without a known answer, before the model is loaded. */
async function openRows(
  config: BuildPreferencesConfig,
  { device, prompts, extra }: { device: Device; prompts: PolicyPrompt[]; extra?: readonly RewardScorer[] },
  opened: DisposableStack,
): Promise<(context: RowContext) => Maker> {
  if (config.kind === 'pairs') {
    const scorer = await configuredScorer(config, { device, prompts, extra });
    opened.defer(() => scorer.dispose?.());
    return (context) => pairRows(context, scorer);
  }
  checkVerifiable(prompts, config.kind);
  return config.kind === 'graded' ? gradedRows : stepRows;
}

async function choosePrompts(
  config: BuildPreferencesConfig,
  writer: PromptWriter,
  { dataset: rows, progress }: BuildPreferencesOptions,
): Promise<PolicyPrompt[]> {
  const { task, seed, prompts: count, subset } = config;
  if (task !== undefined) return new TaskPrompts(writer, { tasks: task, seed }).take(count);
  const dataset = (rows ?? config.dataset) as DatasetSpec;
  return (await datasetPrompts(writer, { dataset, subset, trainPrompts: count, evalPrompts: 0, seed, progress })).train;
}

/**
 * Writes to a temporary file and renames it, so that a failed build leaves no incomplete file. A stopped build keeps
 * its rows in `….part`.
 */
async function writeRows(
  context: RowContext,
  maker: Maker,
  { progress, signal }: BuildPreferencesOptions,
): Promise<WrittenFile & RowSummary> {
  const { config, prompts } = context;
  const { output, batchPrompts } = config;
  makeFolder(dirname(output));
  const partial = `${output}.${process.pid}.part`;
  const file = openSync(partial, 'w');
  let done = 0;
  let rows = 0;
  const bar = progress?.start('sampling', prompts.length, 'prompts');
  try {
    for (; done < prompts.length && !signal?.aborted; done += batchPrompts) {
      const made = await rowsFrom(context, maker, done, signal);
      const lines = made.flat().map((row) => `${JSON.stringify(row)}\n`);
      writeFileSync(file, lines.join(''));
      rows += lines.length;
      bar?.advance(made.length, { rows });
    }
  } catch (error) {
    if (!signal?.aborted) {
      rmSync(partial, { force: true });
      throw error;
    }
  } finally {
    closeSync(file);
    bar?.done();
  }
  const stopped = done < prompts.length;
  if (rows === 0 && !stopped && config.kind === 'pairs') {
    rmSync(partial);
    throw noPairs(config, prompts.length);
  }
  const kept = stopped ? `${output}.part` : output;
  renameSync(partial, kept);
  return { output: kept, stopped, prompts: Math.min(done, prompts.length), ...maker.summary() };
}

/** The error for a build without pairs: an empty file is no training data. An existing file stays. */
function noPairs({ output, minGap = 0 }: BuildPreferencesConfig, prompts: number): AttuneError {
  const gap = minGap > 0 ? `differ by more than --min-gap ${minGap}` : 'differ';
  const remedy = `Sample more of them (--samples) or more varied ones (--temperature), ${minGap > 0 ? 'lower --min-gap, ' : ''}or take prompts that are neither too easy nor too hard for the model.`;
  return new AttuneError(
    `No pairs: none of ${prompts} prompts gave different responses whose scores ${gap}, so ${output} was not written. ${remedy}`,
  );
}

/** The rows of the prompts from index `first` on. */
async function rowsFrom(
  { config, prompts, sampler, tokenizer }: RowContext,
  maker: Maker,
  first: number,
  signal: AbortSignal | undefined,
): Promise<object[][]> {
  const batch = prompts.slice(first, first + config.batchPrompts);
  const options = { ...config, groupSize: config.samples, seeds: rolloutSeeds(config.seed, first), signal };
  const rollouts = await sampleRollouts(sampler, tokenizer, batch, options);
  return maker.rows({ first, prompts: batch, rollouts, signal });
}
