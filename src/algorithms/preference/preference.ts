/**
 * A direct-alignment loss as data. Each response gets a score (its log-ratio to the reference, or its own mean
 * log-prob), and `terms` computes the loss from the scores of both sides. A new loss is one file here and one line in
 * ../index.ts.
 *
 *     const algorithm = preferenceLoss('dpo');
 *     const batch = preferenceBatch({ lp, lpRef, lengths, chosen: [0, 2], rejected: [1, 3] });
 *     algorithm.loss(batch, preferenceOptions(algorithm, { beta: 0.2 }), { chosen: 2, rejected: 2 });
 */
import { call, checkArguments, filledText } from '../../arguments.ts';
import { AttuneError, UserError } from '../../errors.ts';
import { integers, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import { share } from '../aggregation.ts';
import type { LossResult, Metrics } from '../metrics.ts';
import { withDefaults } from '../options.ts';
import { segmentSum, segmentsOf } from '../segments.ts';

/** The responses of one side, chosen or rejected; every tensor is [responses]. */
export interface Side {
  /** Σ lp over the response, with gradient. */
  lp: Tensor;
  /** Σ lpRef. Required if the loss needs a reference. */
  lpRef?: Tensor;
  /** Number of response tokens. */
  lengths: Tensor;
}

/**
 * The responses of a micro-batch. In a paired loss the i-th responses of both sides form a pair. In an unpaired loss
 * either side may be empty.
 */
export interface PreferenceBatch {
  chosen: Side;
  rejected: Side;
}

/** KTO's z0 for each side, from the whole step. */
export interface Baseline {
  chosen: number;
  rejected: number;
}

/** The denominators of a preference step, counted once over all its micro-batches and ranks. */
export interface PreferenceTotals {
  chosen: number;
  rejected: number;
  /** Required by losses with a `baseline`. */
  baseline?: Baseline;
}

/** The options of all preference losses; each loss reads those in its `defaults`. */
export interface PreferenceOptions {
  beta: number;
  labelSmoothing: number;
  lengthNormalize: boolean;
  /** SimPO's target margin γ, as a multiple of β. */
  gammaBetaRatio: number;
  desirableWeight: number;
  undesirableWeight: number;
}

const neutral: PreferenceOptions = {
  beta: 1,
  labelSmoothing: 0,
  lengthNormalize: false,
  gammaBetaRatio: 0,
  desirableWeight: 1,
  undesirableWeight: 1,
};

/** A preference loss, and what a trainer must supply. */
export interface PreferenceLoss {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly summary: string;
  readonly paper: string;
  readonly needsReference: boolean;
  readonly paired: boolean;
  /**
   * How z0 of the step is computed before its losses (kto.ts): `mismatched` from the log-ratios of responses to other
   * prompts, `pairs` from those of the step's own pairs. Both without gradient.
   */
  readonly baseline?: 'mismatched' | 'pairs';
  readonly defaults: Partial<PreferenceOptions>;
  readonly loss: (batch: PreferenceBatch, options: PreferenceOptions, totals: PreferenceTotals) => LossResult;
}

/** A response's score; the implicit reward is β times it. */
export type Score = (side: Side, options: PreferenceOptions) => Tensor;

/** d = Σ lp − Σ lpRef: a response's log-ratio to the reference. */
export const logRatio: Score = ({ lp, lpRef }) => lp.sub(reference(lpRef));
/** d / |y|: the log-ratio per token. */
export const meanLogRatio: Score = (side, options) => logRatio(side, options).div(side.lengths);
/** Σ lp / |y|: the log-prob per token. */
export const meanLogProb: Score = ({ lp, lengths }) => lp.div(lengths);

/** The input of a preference loss's terms: the scores of both sides, and the whole micro-batch. */
export interface PairTerms {
  /** Scores of the chosen (w) and the rejected (l) side. */
  w: Tensor;
  l: Tensor;
  batch: PreferenceBatch;
  options: PreferenceOptions;
  totals: PreferenceTotals;
}

type Definition = Pick<PreferenceLoss, 'name' | 'summary' | 'paper' | 'baseline' | 'defaults'> & {
  aliases?: readonly string[];
  paired?: boolean;
  needsReference?: boolean;
  score?: Score;
  /** The terms, summed over the step and divided by its pairs (unpaired: by its responses). */
  terms: (input: PairTerms) => Tensor | readonly Tensor[];
};

/** Makes a preference loss from the terms of a pair; pass it to `trainPreference` as `loss`. */
export function definePreferenceLoss({ terms, score = logRatio, ...definition }: Definition): PreferenceLoss {
  checkArguments('definePreferenceLoss', { terms, ...definition }, { name: filledText, terms: call }, [
    'name',
    'terms',
  ]);
  const { aliases = [], paired = true, needsReference = true } = definition;
  return {
    ...definition,
    aliases,
    paired,
    needsReference,
    loss: (batch, options, totals) =>
      scope(() => {
        const w = score(batch.chosen, options);
        const l = score(batch.rejected, options);
        if (paired && w.numel !== l.numel)
          throw new AttuneError(`${definition.name} takes pairs: ${w.numel} chosen and ${l.numel} rejected.`);
        const made = terms({ w, l, batch, options, totals });
        const total = paired ? totals.chosen : totals.chosen + totals.rejected;
        const loss = (Array.isArray(made) ? made : [made as Tensor])
          .map((part) => share(part, total, paired ? 'pairs' : 'responses'))
          .reduce((sum, part) => sum.add(part));
        const metrics = noGrad(() => metricsOf(loss, w, l, batch, options, totals, paired));
        return { loss, metrics };
      }),
  };
}

/** The loss's default options with your changes; an option that it does not read throws a UserError. */
export function preferenceOptions(
  algorithm: PreferenceLoss,
  changes: Partial<PreferenceOptions> = {},
): PreferenceOptions {
  const options = withDefaults(algorithm.name, neutral, algorithm.defaults, changes);
  if (!(options.beta > 0)) throw new UserError(`beta of ${algorithm.name} is ${options.beta}; it must be above 0.`);
  if (!(options.labelSmoothing >= 0 && options.labelSmoothing < 0.5)) {
    throw new UserError(
      `labelSmoothing is ${options.labelSmoothing}; it is a share of wrong labels, from 0 to below 0.5.`,
    );
  }
  return options;
}

/** A micro-batch from packed token log-probs [n]; `chosen` and `rejected` list the sequences of each side. */
export function preferenceBatch(input: {
  lp: Tensor;
  lpRef?: Tensor;
  lengths: readonly number[];
  chosen: readonly number[];
  rejected: readonly number[];
}): PreferenceBatch {
  return scope(() => {
    const segments = segmentsOf(input.lengths, input.lp);
    // In float64, like the reference's sums: if policy and reference are equal, margins are exactly 0.
    const sum = (values: Tensor) => segmentSum(values.to('float64'), segments).to(values.dtype);
    const sums = sum(input.lp);
    const refSums = input.lpRef === undefined ? undefined : sum(input.lpRef);
    const side = (members: readonly number[]): Side => {
      const index = integers(members, { device: input.lp.device });
      const pick = (values: Tensor) => values.indexSelect(0, index);
      return { lp: pick(sums), lpRef: refSums && pick(refSums), lengths: pick(segments.lengths) };
    };
    return { chosen: side(input.chosen), rejected: side(input.rejected) };
  });
}

function reference(lpRef: Tensor | undefined): Tensor {
  if (lpRef === undefined) throw new AttuneError('This loss needs the reference’s log-probs ("lpRef") of both sides.');
  return lpRef;
}

function metricsOf(
  loss: Tensor,
  w: Tensor,
  l: Tensor,
  { chosen, rejected }: PreferenceBatch,
  { beta }: PreferenceOptions,
  totals: PreferenceTotals,
  paired: boolean,
): Metrics {
  const out: Metrics = { loss: loss.detach() };
  const both = totals.chosen + totals.rejected;
  const sides = [
    ['chosen', chosen, w, totals.chosen],
    ['rejected', rejected, l, totals.rejected],
  ] as const;
  for (const [name, side, score, total] of sides) {
    if (total === 0) continue;
    const mean = (values: Tensor) => share(values.detach(), total, `${name} responses`);
    out[`${name}_reward`] = mean(score).mul(beta);
    out[`${name}_lp`] = mean(side.lp);
    out[`${name}_length`] = mean(side.lengths);
    if (side.lpRef !== undefined) {
      // the mean log-ratio is not a KL: the policy did not write these responses, so it may fall below 0 as the policy
      // moves away
      const drift = share(side.lp.detach().sub(side.lpRef), both, 'responses');
      out.log_ratio = out.log_ratio === undefined ? drift : out.log_ratio.add(drift);
    }
  }
  if (out.chosen_reward && out.rejected_reward) out.margin = out.chosen_reward.sub(out.rejected_reward);
  const right = (difference: Tensor) => difference.sign().add(1).div(2);
  if (paired) {
    out.accuracy = share(right(w.detach().sub(l)), totals.chosen, 'pairs');
  } else {
    const z0 = totals.baseline ?? { chosen: 0, rejected: 0 };
    const up = right(w.detach().sub(z0.chosen)).sum();
    const down = right(l.detach().sub(z0.rejected).neg()).sum();
    out.accuracy = up.add(down).div(both);
  }
  return out;
}
