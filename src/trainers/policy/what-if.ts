/**
 * Recomputes a stored step under another algorithm or other options: advantages, losses and clipping, next to the
 * recorded ones. At the sampler's log-probs every ratio is 1, as in the step's first update. The weights of a later
 * checkpoint show the ratios and clipping that followed.
 *
 *     const { recorded, changed } = await whatIf('checkpoints/grpo/run', { step: 12, algorithm: 'dapo' });
 */
import { join } from 'node:path';
import {
  type PolicyAlgorithm,
  type PolicyOptions,
  policyAlgorithms,
  usesReference,
  usesTeacherKl,
} from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import { loadModel } from '../../models/index.ts';
import { scoreLogprobs } from '../../rollouts/batches.ts';
import type { Rollout } from '../../rollouts/rollout.ts';
import { camelCase, type OpenRun, openRun, resolveConfig } from '../../runs/index.ts';
import { noGrad, scope } from '../../tensor/index.ts';
import { computeAdvantages, trainedRollouts } from './advantages.ts';
import { algorithmFields, algorithmOf } from './algorithm-options.ts';
import { type PolicyConfig, policySchema } from './config.ts';
import { batchOf, firstLosses, replayStep, storedStep } from './replay.ts';

export interface WhatIfQuestion {
  step: number;
  /** Default: the run's own. */
  algorithm?: string;
  /** Options of the algorithm, named as in the config. */
  options?: Record<string, unknown>;
  /** A checkpoint of the run whose weights give the log-probs. Default: the sampler's log-probs. */
  checkpoint?: string;
}

/** One side of the comparison: an algorithm, its options, and the step's numbers under it. */
export interface WhatIfSide {
  algorithm: string;
  /** The options that the algorithm reads. */
  options: Record<string, unknown>;
  losses: Record<string, number>;
  /** The values that the run logged. */
  logged?: Record<string, number>;
  /** Share of tokens whose ratio is clipped. */
  shareClipped: number;
  meanRatio: number;
  /** Number of rollouts with a gradient. */
  trained: number;
}

export interface WhatIfRollout {
  id: number;
  reward: number;
  recorded: number;
  changed: number;
  ratio: number[];
  clipped: number[];
  clippedRecorded: number[];
  advantages: number[];
}

export interface WhatIf {
  step: number;
  recorded: WhatIfSide;
  changed: WhatIfSide;
  rollouts: WhatIfRollout[];
  /** Whether the recomputed numbers of the recorded side match the run's metrics. */
  agrees: boolean;
  samplerGap: number;
  algorithms: string[];
  notes: string[];
  checkpoint?: string;
}

export async function whatIf(folder: string, question: WhatIfQuestion): Promise<WhatIf> {
  const { step, checkpoint } = question;
  const run = openRun(folder);
  const replayed = replayStep(folder, step);
  const own = resolveConfig(policySchema, { checkpoint: run.config }).config;
  const notes: string[] = [];
  const other = changedConfig(run, question);
  const stored = readStep(run, step);
  const logprobs = checkpoint === undefined ? undefined : await logprobsUnder(run, checkpoint, own, stored.rollouts);
  const recorded = computed(own, stored.rollouts, step, logprobs, notes, run);
  const changed = computed(other, readStep(run, step).rollouts, step, logprobs, notes);
  const logged = Object.fromEntries(replayed.losses.map(({ name, stored: value }) => [name, value]));
  return {
    step,
    recorded: { ...recorded.side, logged },
    changed: changed.side,
    rollouts: stored.stored.map(({ id, reward, stored: advantage }, i) => ({
      id,
      reward,
      recorded: advantage,
      changed: changed.perRollout[i]?.advantage ?? 0,
      ratio: changed.perRollout[i]?.ratio ?? [],
      clipped: changed.perRollout[i]?.clipped ?? [],
      clippedRecorded: recorded.perRollout[i]?.clipped ?? [],
      advantages: changed.perRollout[i]?.advantages ?? [],
    })),
    agrees: replayed.agrees,
    samplerGap: replayed.samplerGap,
    algorithms: answering(algorithmOf(own).algorithm),
    notes: [...new Set(notes)],
    ...(checkpoint === undefined ? {} : { checkpoint }),
  };
}

/** A teacher's log-probs are stored only if the run had a teacher. */
const answering = (own: PolicyAlgorithm) =>
  policyAlgorithms.filter(({ needsTeacher }) => own.needsTeacher || !needsTeacher).map(({ name }) => name);

function readStep(run: OpenRun, step: number): ReturnType<typeof storedStep> {
  using reader = run.rollouts();
  const { config } = resolveConfig(policySchema, { checkpoint: run.config });
  return storedStep(reader, step, algorithmOf(config).algorithm);
}

/** Another algorithm starts from its own defaults. The options given for the run's algorithm do not carry over. */
function changedConfig(run: OpenRun, { algorithm, options = {} }: WhatIfQuestion): PolicyConfig {
  const own = run.config;
  const known = new Set(Object.keys(algorithmFields()));
  const unknown = Object.keys(options).find((name) => !known.has(camelCase(name)));
  if (unknown !== undefined)
    throw new UserError(`"${unknown}" is no option of an algorithm. There are: ${[...known].join(', ')}.`);
  const isOther = algorithm !== undefined && algorithm !== own.algorithm;
  const kept = Object.entries(own).filter(([name]) => !isOther || !known.has(camelCase(name)));
  const flags = { ...options, ...(algorithm === undefined ? {} : { algorithm }) };
  return resolveConfig(policySchema, { checkpoint: Object.fromEntries(kept), flags }).config;
}

interface Computed {
  side: WhatIfSide;
  perRollout: { advantage: number; ratio: number[]; clipped: number[]; advantages: number[] }[];
}

/** Advantages, losses and clipping of a step's rollouts under a config. */
function computed(
  config: PolicyConfig,
  rollouts: readonly Rollout[],
  step: number,
  scored: readonly Float32Array[] | undefined,
  notes: string[],
  run?: OpenRun,
): Computed {
  const { algorithm, options: asked } = algorithmOf(config);
  const row = run?.metrics().find((metrics) => metrics.step === step);
  const options = known(algorithm, { ...asked, klCoef: row?.['train/kl_coef'] ?? asked.klCoef }, rollouts, notes);
  const trained = trainedRollouts(algorithm, options, rollouts);
  computeAdvantages(algorithm, options, trained);
  const logprobs = scored && new Map(rollouts.map((rollout, i) => [rollout, scored[i] as Float32Array]));
  const tokens = trained.length === 0 ? [] : perToken(algorithm, options, trained, logprobs);
  const byRollout = new Map(trained.map((rollout, i) => [rollout, tokens[i]]));
  const all = tokens.flatMap(({ ratio }) => ratio);
  const clipped = tokens.flatMap((each) => each.clipped);
  return {
    side: {
      algorithm: algorithm.name,
      options: Object.fromEntries(
        Object.keys(algorithm.defaults).map((name) => [name, options[name as keyof PolicyOptions]]),
      ),
      losses: trained.length === 0 ? {} : firstLosses(algorithm, options, trained, config, step, logprobs),
      shareClipped: mean(clipped),
      meanRatio: all.length === 0 ? 1 : mean(all),
      trained: trained.filter(({ advantages }) => advantages.some((advantage) => advantage !== 0)).length,
    },
    perRollout: rollouts.map((rollout) => ({
      advantage: rollout.advantage,
      ratio: byRollout.get(rollout)?.ratio ?? [],
      clipped: byRollout.get(rollout)?.clipped ?? [],
      advantages: Array.from(rollout.advantages),
    })),
  };
}

/** Handles what was not stored: a missing reference switches the KL off, a missing critic is refused. */
function known(
  algorithm: PolicyAlgorithm,
  options: PolicyOptions,
  rollouts: readonly Rollout[],
  notes: string[],
): PolicyOptions {
  const [first] = rollouts;
  if (algorithm.needsValue && first?.values === undefined)
    throw new UserError(`${algorithm.name} needs a critic's values, and this run had no critic: they are not stored.`);
  if (usesTeacherKl(algorithm, options))
    throw new UserError(
      `${algorithm.name} compares whole vocabularies with its teacher's, and these are not stored; --distill-as advantage takes what is.`,
    );
  if (algorithm.needsTeacher && first?.lpTeacher === undefined)
    throw new UserError(
      `${algorithm.name} needs a teacher's log-probs, and this run had no teacher: they are not stored.`,
    );
  if (options.entropyCoef !== 0) notes.push('Entropies are not stored: the entropy bonus is left out.');
  if (options.overlongRamp !== 0)
    notes.push('Rewards are as they were recorded: a penalty for overlong responses is not added or taken away.');
  const entropyCoef = 0;
  if (!usesReference(algorithm, options) || first?.lpRef !== undefined) return { ...options, entropyCoef };
  notes.push('The reference’s log-probs are not stored: the KL term is left out.');
  return { ...options, entropyCoef, klCoef: 0 };
}

/** The algorithm's ratio and clip range for every token of every rollout. */
function perToken(
  algorithm: PolicyAlgorithm,
  options: PolicyOptions,
  rollouts: readonly Rollout[],
  logprobs: ReadonlyMap<Rollout, Float32Array> | undefined,
): { ratio: number[]; clipped: number[] }[] {
  const { ratio, clipped } = scope(() =>
    noGrad(() => {
      const batch = batchOf(rollouts, logprobs);
      const own = batch.lp.sub(batch.lpOld).exp();
      const terms = algorithm.terms({ ...batch, ratio: own, options });
      return { ratio: (terms.ratio ?? own).numbers(), clipped: terms.clipped?.numbers() };
    }),
  );
  let start = 0;
  return rollouts.map(({ responseIds: { length } }) => {
    const part = { ratio: ratio.slice(start, start + length), clipped: clipped?.slice(start, start + length) };
    start += length;
    return { ratio: Array.from(part.ratio), clipped: Array.from(part.clipped ?? new Array<number>(length).fill(0)) };
  });
}

async function logprobsUnder(
  run: OpenRun,
  checkpoint: string,
  config: PolicyConfig,
  rollouts: readonly Rollout[],
): Promise<Float32Array[]> {
  using model = await loadModel(join(run.folder, checkpoint));
  model.train(false);
  const { temperature, microBatchTokens } = config;
  return scoreLogprobs(model, null, rollouts, { temperature, microBatchTokens }).logprobs;
}

const mean = (values: readonly number[]) =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
