/**
 * The mathematics of post-training: pure functions from tensors to `{ loss, metrics }`, and the algorithms as data.
 *
 *     import { policyAlgorithm, policyOptions, segmentsOf, stepTotals } from 'attune/algorithms';
 *
 *     const algorithm = policyAlgorithm('grpo');
 *     const totals = stepTotals(lengths, 512);                          // over the whole optimizer step
 *     const { loss } = algorithm.loss({ lp, lpOld, lpRef, advantages, segments }, policyOptions(algorithm), totals);
 */
import { UserError } from '../errors.ts';
import { findByName } from './options.ts';
import { cispo } from './policy/cispo.ts';
import { dapo } from './policy/dapo.ts';
import { drgrpo } from './policy/drgrpo.ts';
import { grpo } from './policy/grpo.ts';
import { gspo } from './policy/gspo.ts';
import { maxrl } from './policy/maxrl.ts';
import { opd } from './policy/opd.ts';
import type { PolicyAlgorithm } from './policy/policy.ts';
import { ppo } from './policy/ppo.ts';
import { raft } from './policy/raft.ts';
import { reinforce } from './policy/reinforce.ts';
import { rloo } from './policy/rloo.ts';
import { sapo } from './policy/sapo.ts';
import { apoDown, apoZero } from './preference/apo.ts';
import { cdpo, dpo, dpoNorm, hinge, robust } from './preference/dpo.ts';
import { ipo } from './preference/ipo.ts';
import { kto, ktoPair } from './preference/kto.ts';
import { orpo } from './preference/orpo.ts';
import type { PreferenceLoss } from './preference/preference.ts';
import { simpo } from './preference/simpo.ts';

/** The policy-gradient algorithms that come with attune. */
export const policyAlgorithms: readonly PolicyAlgorithm[] = [
  reinforce,
  rloo,
  ppo,
  grpo,
  drgrpo,
  gspo,
  cispo,
  dapo,
  sapo,
  maxrl,
  raft,
  opd,
];

/** The preference losses that come with attune. */
export const preferenceLosses: readonly PreferenceLoss[] = [
  dpo,
  cdpo,
  robust,
  hinge,
  ipo,
  dpoNorm,
  simpo,
  orpo,
  kto,
  ktoPair,
  apoZero,
  apoDown,
];

/** Algorithms and losses that the program registered. */
const given = { algorithms: new Map<string, PolicyAlgorithm>(), losses: new Map<string, PreferenceLoss>() };

/** Registers a policy algorithm of your own for this process and returns its name. */
export function useAlgorithm(algorithm: PolicyAlgorithm): string {
  return adopt(given.algorithms, policyAlgorithms, algorithm);
}

/** Registers a preference loss of your own for this process and returns its name. */
export function useLoss(loss: PreferenceLoss): string {
  return adopt(given.losses, preferenceLosses, loss);
}

function adopt<Value extends { name: string }>(into: Map<string, Value>, own: readonly Value[], value: Value): string {
  const known = own.find(({ name }) => name === value.name);
  if (known !== undefined && known !== value)
    throw new UserError(`"${value.name}" is the name of one of attune's own: give yours another.`);
  if (known === undefined) into.set(value.name, value);
  return value.name;
}

/** Finds a policy algorithm by name or alias; an unknown name throws a UserError that suggests the nearest one. */
export function policyAlgorithm(name: string): PolicyAlgorithm {
  return findByName([...policyAlgorithms, ...given.algorithms.values()], name, 'policy algorithm');
}

/**
 * Finds a preference loss by name or alias (`sigmoid`, `kto_pair`); an unknown name throws a UserError that suggests
 * the nearest one.
 */
export function preferenceLoss(name: string): PreferenceLoss {
  return findByName([...preferenceLosses, ...given.losses.values()], name, 'preference loss');
}

export * from './adaptive-kl.ts';
export {
  meanOf,
  type ResponseAdvantage,
  responseAdvantages,
  standardised,
  stdOf,
  zeroSpreadShare,
} from './advantages.ts';
export { type Aggregation, aggregate, aggregations, type StepTotals, stepTotals } from './aggregation.ts';
export * from './distillation.ts';
export * from './gae.ts';
export * from './kl.ts';
export { combineMetrics, type LossResult, MetricSums, type Metrics, meanMetrics } from './metrics.ts';
export { meanPassAtK, passAtK } from './pass-at-k.ts';
export * from './policy/advantages.ts';
export type { PolicyOptions } from './policy/options.ts';
export {
  definePolicyAlgorithm,
  type PolicyAlgorithm,
  type PolicyBatch,
  policyOptions,
  type TermInput,
  type Terms,
  usesReference,
  usesTeacherKl,
} from './policy/policy.ts';
export { mismatchedBaseline, mismatchedPairs, pairsBaseline } from './preference/kto.ts';
export {
  type Baseline,
  definePreferenceLoss,
  logRatio,
  meanLogProb,
  meanLogRatio,
  type PairTerms,
  type PreferenceBatch,
  type PreferenceLoss,
  type PreferenceOptions,
  type PreferenceTotals,
  preferenceBatch,
  preferenceOptions,
  type Score,
  type Side,
} from './preference/preference.ts';
export * from './reward-models.ts';
export * from './reward-shaping.ts';
export * from './segments.ts';
export * from './sft.ts';
export {
  apoDown,
  apoZero,
  cdpo,
  cispo,
  dapo,
  dpo,
  dpoNorm,
  drgrpo,
  grpo,
  gspo,
  hinge,
  ipo,
  kto,
  ktoPair,
  maxrl,
  opd,
  orpo,
  ppo,
  raft,
  reinforce,
  rloo,
  robust,
  sapo,
  simpo,
};
