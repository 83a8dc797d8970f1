/**
 * Several methods from one start: the same prompts, the same number of samples and steps, the same limit in seconds, and the
 * same judge on the same held-out prompts, for several seeds.
 *
 *     const { results } = await compareMethods({ model: './tiny', methods: ['grpo', 'dpo'], task: 'chain_sum:1', steps: 50 });
 *
 * Preference losses learn from pairs that the starting model wrote to the very prompts that the policy methods get, ranked by
 * the same judge: as many responses as a policy method samples.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { meanOf } from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import { type Model, Sampler } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { lookAt } from '../../rollouts/batches.ts';
import { evaluatePrompts } from '../../rollouts/evaluation.ts';
import { openPrompts } from '../../rollouts/opening.ts';
import type { PolicyPrompt } from '../../rollouts/prompts.ts';
import { promptLabel } from '../../rollouts/records.ts';
import { type Rollout, sampleRollouts } from '../../rollouts/rollout.ts';
import { configuredScorer, scoreRollouts } from '../../rollouts/scoring.ts';
import { resolveConfig } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { TrainingRun } from '../../trainers/loop/training-run.ts';
import { checkPolicyConfig, type PolicyConfig, policySchema } from '../../trainers/policy/config.ts';
import { startPolicy } from '../../trainers/policy/policy.ts';
import { trainPreference } from '../../trainers/preference/preference.ts';
import { loadForTraining, saveForTraining } from '../../trainers/setup.ts';
import {
  type CompareConfig,
  type CompareInput,
  compareSchema,
  type Method,
  methodsOf,
  policyFlags,
  preferenceFlags,
} from './config.ts';
import { type ComparisonResults, comparisonResults, writeComparison } from './report.ts';

export interface Judgement {
  step: number;
  /** `reward`, `accuracy`, `pass_at_k`, `length_mean`, `ended`. */
  metrics: Record<string, number>;
  /** Σ over a response of log π − log π of the start, mean over sampled answers. */
  kl: number;
}

/** One run of one method. */
export interface MethodRun {
  method: string;
  seed: number;
  /** Per step: what the trainer itself logs. */
  history: { step: number; metrics: Record<string, number> }[];
  judgements: Judgement[];
  /** Of training alone, the making of pairs included and judging left out. */
  seconds: number;
  samples: number;
  steps: number;
  answers: { prompt: string; text: string; reward: number }[];
}

export interface CompareOptions {
  signal?: AbortSignal;
  progress?: Progress;
  onRun?: (run: MethodRun) => void;
}

export interface CompareOutcome {
  folder: string;
  start: Judgement;
  runs: MethodRun[];
  results: ComparisonResults;
}

export async function compareMethods(input: CompareInput, options: CompareOptions = {}): Promise<CompareOutcome> {
  const { config } = resolveConfig(compareSchema, { flags: { ...input } });
  const methods = methodsOf(config.methods);
  for (const method of methods) checkPolicyConfig(policyConfig(config, method, 0));
  const first = policyConfig(config, pairing, config.seeds[0] as number);
  const start = await loadForTraining({ ...first, lora: false });
  const { model, tokenizer, device } = start;
  model.train(false);
  const { evaluation } = await openPrompts(first, tokenizer);
  const scorer = await configuredScorer(first, { device, prompts: evaluation });
  const judge = new Judge(config, model, tokenizer, scorer, evaluation);
  try {
    const before = await judge.judge(model, 0);
    const runs: MethodRun[] = [];
    comparison: for (const seed of config.seeds) {
      // Before any method is run, so that a start without pairs is told at once.
      const wanted = methods.some(({ kind }) => kind === 'preference');
      const pairs = wanted ? await writePairs(config, seed, { model, tokenizer, scorer }) : undefined;
      for (const method of methods) {
        const run = await runMethod(config, method, seed, { judge, before, pairs, options });
        // What was interrupted is not compared with what had its whole budget.
        if (options.signal?.aborted) break comparison;
        runs.push(run);
        options.onRun?.(run);
      }
    }
    if (runs.length === 0) throw new DOMException('interrupted', 'AbortError');
    const results = comparisonResults(before, runs);
    await writeComparison(config, before, runs, results);
    return { folder: config.outputDir, start: before, runs, results };
  } finally {
    scorer.dispose?.();
    model.dispose();
  }
}

/** What says which prompts, rewards and sampling a comparison has: responses to one prompt, held against one another. */
const pairing: Method = { name: 'grpo', kind: 'policy' };

/** A policy run's config; of a preference loss, that of the run its pairs come from. */
function policyConfig(config: CompareConfig, method: Method, seed: number): PolicyConfig {
  const sampled = method.kind === 'policy' ? method : pairing;
  return resolveConfig(policySchema, { flags: policyFlags(config, sampled, seed) }).config;
}

interface RunContext {
  judge: Judge;
  before: Judgement;
  pairs: Pairs | undefined;
  options: CompareOptions;
}

async function runMethod(config: CompareConfig, method: Method, seed: number, context: RunContext): Promise<MethodRun> {
  const { judge, before, pairs, options } = context;
  using run = await startMethod(config, method, seed, pairs, options);
  const every = Math.max(1, Math.round(config.steps / config.judgements));
  const history: MethodRun['history'] = [];
  const judgements: Judgement[] = [before];
  const offline = method.kind === 'preference' ? (pairs as Pairs) : undefined;
  let seconds = offline?.seconds ?? 0;
  for await (const { step, metrics } of run) {
    seconds += metrics['train/step_time'] ?? 0;
    history.push({ step, metrics });
    const isLast = step === config.steps || (config.maxSeconds !== undefined && seconds >= config.maxSeconds);
    if (isLast || step % every === 0) judgements.push(await judge.judge(run.model, step));
    if (isLast) break;
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
    answers: judge.answers,
  };
  await saveStats(config, result, run);
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
  return trainPreference(
    { ...preferenceFlags(config, method, seed, rows.length), dataset: rows },
    { ...options, cache: false },
  );
}

async function saveStats(config: CompareConfig, result: MethodRun, run: TrainingRun): Promise<void> {
  const folder = join(config.outputDir, result.method);
  mkdirSync(folder, { recursive: true });
  const suffix = result.seed === config.seeds[0] ? '' : `-seed-${result.seed}`;
  writeFileSync(join(folder, `training_stats${suffix}.json`), `${JSON.stringify(result, null, 2)}\n`);
  if (suffix === '') await saveForTraining(run.model, run.tokenizer, join(folder, 'model'));
}

/** One judge for all: the same prompts, scorer and seeds. */
class Judge {
  answers: MethodRun['answers'] = [];
  readonly #config: CompareConfig;
  readonly #start: Model;
  readonly #tokenizer: Tokenizer;
  readonly #scorer: RewardScorer;
  readonly #prompts: readonly PolicyPrompt[];

  constructor(
    config: CompareConfig,
    start: Model,
    tokenizer: Tokenizer,
    scorer: RewardScorer,
    prompts: readonly PolicyPrompt[],
  ) {
    if (prompts.length === 0) throw new UserError('There are no held-out prompts to judge the methods on.');
    this.#config = config;
    this.#start = start;
    this.#tokenizer = tokenizer;
    this.#scorer = scorer;
    this.#prompts = prompts;
  }

  async judge(model: Model, step: number): Promise<Judgement> {
    const { evalSamples: samples, maxNewTokens, temperature, microBatchTokens } = this.#config;
    using sampler = new Sampler(model, { tokenizer: this.#tokenizer });
    const options = { samples, maxNewTokens, temperature, seed: 1 };
    const { metrics, greedy, sampled } = await evaluatePrompts(
      sampler,
      this.#tokenizer,
      this.#scorer,
      this.#prompts,
      options,
    );
    const written = sampled.length > 0 ? sampled : greedy;
    const look = (of: Model) => lookAt(of, null, written, { temperature, microBatchTokens }).logprobs;
    const [now, then] = [look(model), look(this.#start)];
    const kl = meanOf(now.map((lps, i) => lps.reduce((sum, lp, t) => sum + lp - (then[i]?.[t] as number), 0)));
    this.answers = greedy
      .slice(0, 6)
      .map(({ prompt, completion, score }) => ({ prompt: promptLabel(prompt), text: completion, reward: score }));
    return { step, metrics, kl };
  }
}

interface Pairs {
  rows: { prompt: string; chosen: string; rejected: string }[];
  samples: number;
  seconds: number;
}

/** Responses of the start to the training prompts: in each group the best against the worst, the next best against the next worst. */
async function writePairs(
  config: CompareConfig,
  seed: number,
  { model, tokenizer, scorer }: { model: Model; tokenizer: Tokenizer; scorer: RewardScorer },
): Promise<Pairs> {
  const started = performance.now();
  const own = policyConfig(config, pairing, seed);
  const { prompts } = await openPrompts(own, tokenizer);
  using sampler = new Sampler(model, { tokenizer });
  const perStep = config.batchSize * config.gradAccum;
  const rows: Pairs['rows'] = [];
  for (let step = 1; step <= config.steps; step++) {
    const rollouts = await sampleRollouts(sampler, tokenizer, prompts.take(perStep), { ...own, key: [step, 0] });
    await scoreRollouts(scorer, rollouts);
    for (const group of Map.groupBy(rollouts, (rollout) => rollout.group).values()) rows.push(...ranked(group));
    if (config.maxSeconds !== undefined && performance.now() - started > 500 * config.maxSeconds) break;
  }
  if (rows.length === 0)
    throw new UserError(
      'The starting model gave no two responses that the judge tells apart, so there are no pairs for preference losses.',
    );
  return { rows, samples: config.steps * perStep * config.groupSize, seconds: (performance.now() - started) / 1000 };
}

function ranked(group: readonly Rollout[]): Pairs['rows'] {
  const sorted = [...group].sort((a, b) => b.score - a.score);
  const rows: Pairs['rows'] = [];
  for (let i = 0; i < Math.floor(sorted.length / 2); i++) {
    const [chosen, rejected] = [sorted[i] as Rollout, sorted[sorted.length - 1 - i] as Rollout];
    if (chosen.score <= rejected.score) break;
    rows.push({ prompt: promptLabel(chosen.prompt), chosen: chosen.completion, rejected: rejected.completion });
  }
  return rows;
}
