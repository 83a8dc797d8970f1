/**
 * Replays a stored step: recomputes advantages and losses from the database and compares them with the run's metrics.
 * Advantages agree to the database's rounding. Losses agree to about the sampler gap, because the stored log-probs are
 * the sampler's.
 *
 *     const { advantages, losses } = replayStep('checkpoints/grpo/run', 12);
 */
import { basename } from 'node:path';
import {
  combineMetrics,
  type PolicyAlgorithm,
  type PolicyBatch,
  type PolicyOptions,
  segmentsOf,
  stepTotals,
  usesTeacherKl,
} from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import { minibatches, packedTensor } from '../../rollouts/batches.ts';
import type { Rollout } from '../../rollouts/rollout.ts';
import { openRun, type RolloutReader, resolveConfig } from '../../runs/index.ts';
import { scope, type Tensor, zeros } from '../../tensor/index.ts';
import { computeAdvantages, trainedRollouts } from './advantages.ts';
import { algorithmOf } from './algorithm-options.ts';
import { type PolicyConfig, policySchema } from './config.ts';

export interface Comparison {
  name: string;
  stored: number;
  replayed: number;
}

/** A replayed step: recomputed and stored numbers side by side. */
export interface Replay {
  step: number;
  algorithm: string;
  rollouts: { id: number; reward: number; stored: number; replayed: number }[];
  /** The largest difference of a response's advantage. */
  advantageGap: number;
  /** Every term of the first update's loss. */
  losses: Comparison[];
  /** The sampler gap that the run measured. Losses may differ by about this much. */
  samplerGap: number;
  agrees: boolean;
}

/** Recomputes a stored step's advantages and losses from the rollout database. */
export function replayStep(folder: string, step: number): Replay {
  const run = openRun(folder);
  const { config } = resolveConfig(policySchema, { checkpoint: run.config });
  if (config.truncatedRatio)
    throw new UserError(
      'With --truncated-ratio a loss rests on the mass that was cut at each token, which is not stored: it cannot be replayed.',
    );
  const row = run.metrics().find((metrics) => metrics.step === step);
  if (row === undefined)
    throw new UserError(
      `${basename(folder)} has no metrics of step ${step}; it has steps 1 to ${run.metrics().at(-1)?.step ?? 0}.`,
    );
  const { algorithm, options: asked } = algorithmOf(config);
  if (usesTeacherKl(algorithm, asked))
    throw new UserError(
      'The KL to the teacher over the whole vocabulary is not stored: such a step cannot be replayed. With --distill-as advantage one can.',
    );
  const options = { ...asked, klCoef: row['train/kl_coef'] ?? asked.klCoef };
  using reader = run.rollouts();
  const { rollouts, stored } = storedStep(reader, step, algorithm);
  const trained = trainedRollouts(algorithm, options, rollouts);
  computeAdvantages(algorithm, options, trained);
  const compared = rollouts.map((rollout, i) => ({ ...(stored[i] as StoredNumbers), replayed: rollout.advantage }));
  const advantageGap = Math.max(...compared.map((each) => Math.abs(each.stored - each.replayed)));
  const terms = trained.length === 0 ? {} : firstLosses(algorithm, options, trained, config, step);
  const losses = Object.entries(terms).flatMap(([name, replayed]) => {
    const recorded = row[`train/first_${name}`];
    return recorded === undefined ? [] : [{ name, stored: recorded, replayed }];
  });
  const samplerGap = row['train/sampler_gap_max'] ?? 0;
  const scale = Math.max(1, ...trained.flatMap(({ advantages }) => Array.from(advantages, Math.abs)));
  const allowed = 1e-5 + 2 * scale * samplerGap;
  const lossesAgree = losses.every((each) => Math.abs(each.stored - each.replayed) <= allowed);
  return {
    step,
    algorithm: algorithm.name,
    rollouts: compared,
    advantageGap,
    losses,
    samplerGap,
    agrees: advantageGap <= 1e-5 * scale && lossesAgree,
  };
}

export interface StoredNumbers {
  id: number;
  reward: number;
  stored: number;
}

/** The rollouts of a stored step, in the order in which they were written. Index 0 begins a new group. */
export function storedStep(
  reader: RolloutReader,
  step: number,
  { needsTeacher }: Pick<PolicyAlgorithm, 'needsTeacher'>,
): { rollouts: Rollout[]; stored: StoredNumbers[] } {
  const rows = reader.atStep(step);
  if (rows.length === 0) throw new UserError(`No rollouts of step ${step} are stored.`);
  let group = -1;
  const rollouts = rows.map((row): Rollout => {
    if (row.rolloutIndex === 0) group++;
    const tokens = reader.tokens(row.id);
    if (tokens === undefined)
      throw new UserError('This run stored no tokens, so its losses cannot be recomputed. Train with --save-tokens.');
    const { correct, score = row.reward, ...parts } = reader.parts(row.id);
    return {
      prompt: { index: row.promptIndex, messages: [], text: row.prompt, ids: tokens.promptIds },
      group,
      rolloutIndex: row.rolloutIndex,
      ids: Int32Array.from([...tokens.promptIds, ...(tokens.sequence?.ids ?? tokens.completionIds)]),
      promptLength: tokens.promptIds.length,
      ...(tokens.sequence && { spans: tokens.sequence.spans }),
      ...(tokens.sequence?.starts && { starts: tokens.sequence.starts }),
      responseIds: tokens.completionIds,
      response: row.completion,
      ended: true,
      lpOld: tokens.logprobs,
      ...(needsTeacher ? { lpTeacher: tokens.refLogprobs } : { lpRef: tokens.refLogprobs }),
      values: tokens.values,
      reward: row.reward,
      score,
      parts,
      correct: correct === undefined ? undefined : correct === 1,
      advantages: new Float64Array(tokens.completionIds.length),
      advantage: 0,
    };
  });
  return { rollouts, stored: rows.map(({ id, reward, advantage }) => ({ id, reward, stored: advantage })) };
}

/** The loss terms of the step's first update, at the sampler's log-probs or at those of other weights. */
export function firstLosses(
  algorithm: PolicyAlgorithm,
  options: PolicyOptions,
  rollouts: readonly Rollout[],
  config: PolicyConfig,
  step: number,
  logprobs?: ReadonlyMap<Rollout, Float32Array>,
): Record<string, number> {
  const [first = []] = minibatches(rollouts, config.nMinibatches, [config.seed, step, 0]);
  const lengths = first.map(({ responseIds }) => responseIds.length);
  return scope(() => {
    const batch = batchOf(first, logprobs);
    // Entropies are not stored, and the entropy bonus is a term of its own.
    const { metrics } = algorithm.loss(batch, { ...options, entropyCoef: 0 }, stepTotals(lengths, config.maxNewTokens));
    const { policy_loss, value_loss, kl } = combineMetrics([metrics]);
    return Object.fromEntries(
      Object.entries({ policy_loss, value_loss, kl }).filter(
        (entry): entry is [string, number] => entry[1] !== undefined,
      ),
    );
  });
}

/** Rollouts as the batch of a loss. Call it within a scope. */
export function batchOf(rollouts: readonly Rollout[], logprobs?: ReadonlyMap<Rollout, Float32Array>): PolicyBatch {
  const like = zeros([1]);
  const of = (pick: Parameters<typeof packedTensor>[1]) => packedTensor(rollouts, pick, like);
  const lpOld = of(({ lpOld }) => lpOld);
  const [first] = rollouts;
  return {
    lp: logprobs === undefined ? lpOld : of((rollout) => logprobs.get(rollout)),
    lpOld,
    advantages: of(({ advantages }) => advantages),
    segments: segmentsOf(
      rollouts.map(({ responseIds }) => responseIds.length),
      lpOld,
    ),
    ...optional('lpRef', first?.lpRef && of(({ lpRef }) => lpRef)),
    ...optional('values', first?.values && of(({ values }) => values)),
    ...optional('valuesOld', first?.values && of(({ values }) => values)),
    ...optional('returns', first?.returns && of(({ returns }) => returns)),
  };
}

const optional = (name: keyof PolicyBatch, value: Tensor | undefined) => (value === undefined ? {} : { [name]: value });
