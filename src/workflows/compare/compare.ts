/**
 * Compares methods from the same starting model, with the same prompts, number of samples and steps, time limit and
 * held-out evaluation, over several seeds.
 *
 *     const { results } = await compareMethods({ model: './tiny', methods: ['grpo', 'dpo'], task: 'chain_sum:1', steps: 50 });
 *
 * Preference losses train on pairs of the starting model's responses to the same prompts, ranked by the same scorer,
 * with as many responses as a policy method samples.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { joinWorld } from '../../dist/world.ts';
import { makeFolder } from '../../folder.ts';
import { deviceOf, dtypeOf, loadModel, loadTokenizer } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import { openPrompts } from '../../rollouts/opening.ts';
import { configuredScorer } from '../../rollouts/scorer.ts';
import { checkNewRun, claimFolder, resolveConfig, resolveInput } from '../../runs/index.ts';
import type { TrainingRun } from '../../trainers/loop/training-run.ts';
import { checkPolicyConfig } from '../../trainers/policy/config.ts';
import { startPolicy } from '../../trainers/policy/policy.ts';
import { preferenceSchema } from '../../trainers/preference/config.ts';
import { startPreference } from '../../trainers/preference/preference.ts';
import { saveForTraining } from '../../trainers/setup.ts';
import {
  type CompareConfig,
  type CompareInput,
  checkOnce,
  compareSchema,
  methodsOf,
  pairing,
  policyConfig,
  preferenceFlags,
} from './config.ts';
import { Judge, type Judgement } from './judge.ts';
import { checkMethodOptions, type Method } from './method-options.ts';
import { type Pairs, writePairs } from './pairs.ts';
import { comparisonHeading, writeComparison } from './report.ts';
import { type ComparisonResults, comparisonResults, type MethodRun } from './results.ts';

/** Progress, signal and callbacks of `compareMethods`. */
export interface CompareOptions {
  signal?: AbortSignal;
  progress?: Progress;
  onRun?: (run: MethodRun) => void;
}

/** The folder of a comparison, its runs and its results. */
export interface CompareOutcome {
  /** `<output_dir>/run_<date and time>`, or `<output_dir>/<run name>`. */
  folder: string;
  start: Judgement;
  runs: MethodRun[];
  results: ComparisonResults;
}

/** Trains the same model with several methods and seeds, and compares them. */
export async function compareMethods(input: CompareInput, options: CompareOptions = {}): Promise<CompareOutcome> {
  const asked = resolveInput(compareSchema, { ...input });
  const methods = methodsOf(asked.methods);
  checkOnce('--seeds', asked.seeds);
  checkMethodOptions(asked, methods);
  const world = await joinWorld();
  if (world.isFirst) checkNewRun(asked);
  for (const method of methods) checkPolicyConfig(policyConfig(asked, method, 0));
  const first = policyConfig(asked, pairing, asked.seeds[0] as number);
  const device = deviceOf(first.device);
  const { progress } = options;
  const tokenizer = await loadTokenizer(first, progress);
  // the starting model only generates; if adapters train on a quantised base, it is that base
  const { quantType } = first;
  const model = await loadModel(first.model, { dtype: dtypeOf(first.dtype, device), device, quantType, progress });
  const { evaluation } = await openPrompts(first, tokenizer, { progress });
  const scorer = await configuredScorer(first, { device, prompts: evaluation });
  const judge = new Judge(asked, model, tokenizer, scorer, evaluation);
  // Every comparison gets a folder of its own, because two in one would mix.
  const outputDir = await world.share(world.isFirst ? claimFolder({ ...asked, prefix: 'run_' }) : '');
  const config = { ...asked, outputDir };
  try {
    const before = await judge.judge(model, 0);
    const runs: MethodRun[] = [];
    comparison: for (const seed of config.seeds) {
      // Before any method runs, so that a model whose responses give no pairs is reported at once.
      const wanted = methods.some(({ kind }) => kind === 'preference');
      const pairs = wanted ? await writePairs(config, seed, { model, tokenizer, scorer }) : undefined;
      for (const method of methods) {
        const run = await runMethod(config, method, seed, { judge, before, pairs, options }).catch((error: unknown) => {
          // A method stopped before its first step throws the signal's abort reason.
          if (options.signal?.aborted && error === options.signal.reason) return undefined;
          throw error;
        });
        // An interrupted run is left out of the comparison.
        if (run === undefined || (await world.any(Boolean(options.signal?.aborted)))) break comparison;
        runs.push(run);
        options.onRun?.(run);
      }
    }
    if (runs.length === 0)
      throw new DOMException(
        `Stopped before a method had ended: there is nothing to compare. What was trained is in ${config.outputDir}.`,
        'AbortError',
      );
    const results = comparisonResults(before, runs);
    const heading = comparisonHeading(config, scorer, evaluation.length);
    if (world.isFirst) await writeComparison(config, heading, before, runs, results);
    return { folder: config.outputDir, start: before, runs, results };
  } finally {
    scorer.dispose?.();
    model.dispose();
  }
}

interface RunContext {
  judge: Judge;
  before: Judgement;
  pairs: Pairs | undefined;
  options: CompareOptions;
}

async function runMethod(config: CompareConfig, method: Method, seed: number, context: RunContext): Promise<MethodRun> {
  const { judge, before, pairs, options } = context;
  const world = await joinWorld();
  using run = await startMethod(config, method, seed, pairs, options);
  const every = Math.max(1, Math.round(config.steps / config.judgements));
  const history: MethodRun['history'] = [];
  const judgements: Judgement[] = [before];
  const offline = method.kind === 'preference' ? (pairs as Pairs) : undefined;
  let seconds = offline?.seconds ?? 0;
  for await (const { step, metrics } of run) {
    seconds += metrics['train/step_time'] ?? 0;
    history.push({ step, metrics });
    // The ranks' clocks differ, so rank 0's counts.
    seconds = await world.share(seconds);
    const isLast = step === config.steps || (config.maxSeconds !== undefined && seconds >= config.maxSeconds);
    if (isLast || step % every === 0) {
      // With --shard full no rank has the whole weights between steps.
      const { decoder } = run.model;
      if (await decoder.residence?.makeWhole()) decoder.arrangement++;
      judgements.push(await judge.judge(run.model, step));
    }
    // The last step is not broken off, so that the run ends as finished.
    if (isLast && step < run.totalSteps) break;
  }
  const responses = config.batchSize * config.gradAccum * config.groupSize;
  const steps = history.at(-1)?.step ?? 0;
  const result: MethodRun = {
    method: method.name,
    seed,
    history,
    judgements,
    seconds,
    samples: offline?.samples ?? steps * responses,
    steps,
    responses: judge.responses,
  };
  if (world.isFirst) await saveStats(config, result, run);
  return result;
}

function startMethod(
  config: CompareConfig,
  method: Method,
  seed: number,
  pairs: Pairs | undefined,
  { signal, progress }: CompareOptions,
): Promise<TrainingRun> {
  const options = { signal, progress, run: { curves: false, existing: 'reuse' as const } };
  if (method.kind === 'policy')
    return startPolicy({ config: { ...policyConfig(config, method, seed), evalSteps: -1 }, sources: {} }, options);
  const rows = pairs?.rows ?? [];
  // The methods share a comparison's options, and not every method reads all of them, so unread options are not
  // refused.
  const resolved = resolveConfig(preferenceSchema, { flags: preferenceFlags(config, method, seed, rows.length) });
  return startPreference(resolved, { ...options, dataset: rows, cache: false });
}

async function saveStats(config: CompareConfig, result: MethodRun, run: TrainingRun): Promise<void> {
  const folder = join(config.outputDir, result.method);
  makeFolder(folder);
  const suffix = result.seed === config.seeds[0] ? '' : `-seed-${result.seed}`;
  writeFileSync(join(folder, `training_stats${suffix}.json`), `${JSON.stringify(result, null, 2)}\n`);
  if (suffix === '') await saveForTraining(run.model, run.tokenizer, join(folder, 'model'));
}
