/**
 * A policy-gradient algorithm as data. A loss is a token term × an advantage × an aggregation, with the KL to the
 * reference in the reward, in the loss, or absent. A new algorithm is one file here and one line in ../index.ts.
 *
 *     const algorithm = policyAlgorithm('grpo');
 *     const options = policyOptions(algorithm, { klCoef: 0.02 });
 *     const { loss, metrics } = algorithm.loss(batch, options, totals);
 */
import { call, checkArguments, filledText } from '../../arguments.ts';
import { AttuneError, suggestion, UserError } from '../../errors.ts';
import { noGrad, scope, type Tensor } from '../../tensor/index.ts';
import { type ResponseAdvantage, responseAdvantageNames } from '../advantages.ts';
import { type Aggregation, aggregate, aggregations, type StepTotals, share } from '../aggregation.ts';
import { klTerms } from '../kl.ts';
import type { LossResult, Metrics } from '../metrics.ts';
import { withDefaults } from '../options.ts';
import type { Segments } from '../segments.ts';
import { commonOptions, klInLossOptions, neutralOptions, type PolicyOptions, rewardOptions } from './options.ts';

/** The packed response tokens of one micro-batch; every tensor is [n]. */
export interface PolicyBatch {
  /** log πθ of the sampled tokens at the sampling temperature, with gradient. */
  lp: Tensor;
  /** log πold of the same tokens: under the weights that sampled them. */
  lpOld: Tensor;
  /** log πref of the same tokens. Required if `usesReference`. */
  lpRef?: Tensor;
  /** A_t. A response's advantage is repeated over its tokens. */
  advantages: Tensor;
  segments: Segments;
  /** Entropy of πθ at each token: a metric and, with `entropyCoef`, part of the loss. */
  entropy?: Tensor;
  /** KL(πθ‖teacher) over the whole vocabulary at each token, with gradient. Required if `usesTeacherKl`. */
  teacherKl?: Tensor;
  /** For algorithms with a value head: V with gradient, V under the weights that sampled, and the returns G. */
  values?: Tensor;
  valuesOld?: Tensor;
  returns?: Tensor;
}

/** A policy-gradient algorithm: its loss, and what a trainer must supply. */
export interface PolicyAlgorithm {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly summary: string;
  readonly paper: string;
  /** `teacher` is token-wise, lpTeacher − lpOld, and ignores rewards. */
  readonly advantage: ResponseAdvantage | 'gae' | 'teacher';
  /** The responses to train on: all, or the best of each group that has one. */
  readonly keeps: 'all' | 'best';
  readonly aggregation: Aggregation;
  readonly klIn: 'reward' | 'loss' | 'none';
  /** Its formula has a KL to the reference. `usesReference` says whether a run needs the reference. */
  readonly needsReference: boolean;
  readonly needsValue: boolean;
  /** It learns from a teacher's log-probs. Rewards are optional and only measured. */
  readonly needsTeacher: boolean;
  /** Exactly the options that it reads, with their defaults. */
  readonly defaults: Partial<PolicyOptions>;
  readonly loss: (batch: PolicyBatch, options: PolicyOptions, totals: StepTotals) => LossResult;
  /** The loss of every token before averaging, the tokens clipped, and the ratio used. */
  readonly terms: (input: TermInput) => Terms;
}

/** The input of an algorithm's token term. */
export interface TermInput extends PolicyBatch {
  /** r = exp(lp − lpOld). */
  ratio: Tensor;
  options: PolicyOptions;
}

/** The loss terms of every token, before averaging. */
export interface Terms {
  /** [n], to be minimised. */
  policy: Tensor;
  /** [n]: 1 if the token's clip is active. */
  clipped?: Tensor;
  /** The ratio that the term uses, if it is not the token's own. */
  ratio?: Tensor;
  /** [n], to be minimised, already weighted. */
  value?: Tensor;
  valueClipped?: Tensor;
}

type Definition = Pick<PolicyAlgorithm, 'name' | 'summary' | 'paper' | 'advantage' | 'aggregation' | 'klIn'> & {
  aliases?: readonly string[];
  needsValue?: boolean;
  keeps?: PolicyAlgorithm['keeps'];
  defaults?: Partial<PolicyOptions>;
  terms: (input: TermInput) => Terms;
};

/**
 * Makes a policy algorithm from its token term, advantage, aggregation and place of the KL; pass it to `trainPolicy` as
 * `algorithm`.
 */
export function definePolicyAlgorithm({ terms, ...definition }: Definition): PolicyAlgorithm {
  checkArguments('definePolicyAlgorithm', { terms, ...definition }, { name: filledText, terms: call }, [
    'name',
    'terms',
  ]);
  const { name, advantage, aggregation, klIn, aliases = [], needsValue = false, keeps = 'all' } = definition;
  checkWord(name, 'advantage', advantage, [...responseAdvantageNames, 'gae', 'teacher']);
  checkWord(name, 'keeps', keeps, ['all', 'best']);
  checkWord(name, 'aggregation', aggregation, aggregations);
  checkWord(name, 'klIn', klIn, ['reward', 'loss', 'none']);
  const kl = klIn === 'none' ? {} : klIn === 'loss' ? klInLossOptions : { klCoef: 0 };
  const needsTeacher = advantage === 'teacher';
  if (needsTeacher && klIn !== 'none')
    throw new UserError(`${name}: a policy with a teacher has no KL to a reference besides: klIn is 'none'.`);
  const common = { ...commonOptions, ...(needsTeacher ? {} : rewardOptions) };
  return {
    ...definition,
    terms,
    aliases,
    needsValue,
    keeps,
    needsReference: klIn !== 'none',
    needsTeacher,
    defaults: { aggregation, ...common, ...kl, ...definition.defaults },
    loss: (batch, options, totals) => scope(() => policyLoss(terms, klIn, batch, options, totals)),
  };
}

/** For callers without types: a misspelt word would otherwise fail in the first step, or train something else. */
function checkWord(algorithm: string, field: string, word: string, known: readonly string[]): void {
  if (known.includes(word)) return;
  throw new UserError(
    `The algorithm "${algorithm}" has the unknown ${field} "${word}".${suggestion(word, known)} Known: ${known.join(', ')}.`,
  );
}

/** The algorithm's default options with your changes; an option that it does not read throws a UserError. */
export function policyOptions(algorithm: PolicyAlgorithm, changes: Partial<PolicyOptions> = {}): PolicyOptions {
  return withDefaults(algorithm.name, neutralOptions, algorithm.defaults, changes);
}

/** Whether a run needs the reference's log-probs: the algorithm has a KL term with a non-zero weight. */
export function usesReference(algorithm: PolicyAlgorithm, options: PolicyOptions): boolean {
  return algorithm.needsReference && options.klCoef !== 0;
}

/** Whether the loss takes the full-vocabulary KL to the teacher instead of the teacher's log-probs. */
export function usesTeacherKl(algorithm: PolicyAlgorithm, options: PolicyOptions): boolean {
  return algorithm.needsTeacher && options.distillAs === 'loss';
}

function policyLoss(
  terms: Definition['terms'],
  klIn: PolicyAlgorithm['klIn'],
  batch: PolicyBatch,
  options: PolicyOptions,
  totals: StepTotals,
): LossResult {
  const { lp, lpOld, lpRef, entropy, teacherKl, segments } = batch;
  const ratio = lp.sub(lpOld).exp();
  const made = terms({ ...batch, ratio, options });
  if (typeof made?.policy?.numel !== 'number')
    throw new UserError(
      'The terms of an algorithm are { policy, … }: `policy` is missing, a tensor with one number per token.',
    );
  // Terms already summed over tokens would train silently, with another loss.
  if (made.policy.numel !== lp.numel)
    throw new UserError(
      `The policy term of an algorithm is one number per token [${lp.numel}]; this one has the shape [${made.policy.shape.join(', ')}].`,
    );
  const gather = (values: Tensor) => aggregate(values, options.aggregation, segments, totals);

  const policy = gather(made.policy);
  let loss = policy;
  if (klIn === 'loss' && options.klCoef !== 0) {
    if (lpRef === undefined) throw missing('lpRef', 'klCoef');
    const terms = klTerms(options.klEstimator, lp, lpRef);
    // DeepSeek-V3.2, eq. 7: under πold the mean of r·k3 is KL(πθ‖πref). The ratio keeps its gradient, as in the paper.
    loss = loss.add(gather(options.klTimesRatio ? terms.mul(ratio) : terms).mul(options.klCoef));
  }
  if (options.entropyCoef !== 0) {
    if (entropy === undefined) throw missing('entropy', 'entropyCoef');
    loss = loss.sub(gather(entropy).mul(options.entropyCoef));
  }
  const value = made.value === undefined ? undefined : gather(made.value);
  if (value !== undefined) loss = loss.add(value);

  const metrics = noGrad(() => {
    const mean = (values: Tensor) => share(values.detach(), totals.tokens, 'tokens');
    const used = (made.ratio ?? ratio).detach();
    const out: Metrics = {
      loss: loss.detach(),
      policy_loss: policy.detach(),
      ratio_mean: mean(used),
      ratio_max: used.max(),
      clip_fraction: made.clipped === undefined ? policy.detach().mul(0) : mean(made.clipped),
      // samples come from πold, so KL(πold‖πθ) has ℓ = lpOld − lp
      old_kl: mean(klTerms('k3', lpOld, lp)),
    };
    if (lpRef !== undefined) out.kl = mean(klTerms('k3', lp, lpRef));
    if (entropy !== undefined) out.entropy = mean(entropy);
    if (teacherKl !== undefined) out.teacher_kl = mean(teacherKl);
    if (value !== undefined) out.value_loss = value.detach();
    if (made.valueClipped !== undefined) out.value_clip_fraction = mean(made.valueClipped);
    return out;
  });
  return { loss, metrics };
}

function missing(field: string, option: string): AttuneError {
  return new AttuneError(`The policy loss needs "${field}" in its batch because ${option} is not 0.`);
}
