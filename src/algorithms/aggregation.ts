/**
 * How token terms are averaged into one number. Denominators cover the whole optimizer step, so the shares of
 * micro-batches and ranks add up to the step's value, and their gradients to the step's gradient.
 *
 * | token    | Σ over response tokens ÷ response tokens              |
 * | sequence | mean over sequences of each sequence's token mean     |
 * | constant | Σ over response tokens ÷ (sequences × maxNewTokens)   |
 * | sum      | Σ over response tokens ÷ sequences                    |
 *
 * `token` is DAPO's (Yu et al. 2025), `sequence` GRPO's (Shao et al. 2024), `constant` Dr. GRPO's (Liu et al. 2025).
 * `sum` is that of the policy-gradient theorem: log π of a response is the sum over its tokens (Williams 1992; Ahmadian
 * et al. 2024).
 */
import { AttuneError } from '../errors.ts';
import type { Tensor } from '../tensor/index.ts';
import { repeatOverTokens, type Segments } from './segments.ts';

/** The names of the aggregations. */
export const aggregations = ['token', 'sequence', 'constant', 'sum'] as const;
/** How token terms are averaged; src/algorithms/aggregation.ts gives the formulas. */
export type Aggregation = (typeof aggregations)[number];

/** The denominators of a policy step, counted once over all its micro-batches and ranks. */
export interface StepTotals {
  /** Number of response tokens. */
  tokens: number;
  /** Number of responses. */
  sequences: number;
  /** The largest allowed response length. */
  maxNewTokens: number;
}

/** The totals of a step whose responses have these lengths. */
export function stepTotals(lengths: ArrayLike<number>, maxNewTokens: number): StepTotals {
  let tokens = 0;
  for (let i = 0; i < lengths.length; i++) tokens += lengths[i] as number;
  return { tokens, sequences: lengths.length, maxNewTokens };
}

/** This micro-batch's share of the step's average of `terms` [n]. */
export function aggregate(terms: Tensor, kind: Aggregation, segments: Segments, totals: StepTotals): Tensor {
  switch (kind) {
    case 'token':
      return share(terms, totals.tokens, 'tokens');
    case 'sequence':
      return share(terms.div(repeatOverTokens(segments.lengths, segments)), totals.sequences, 'sequences');
    case 'constant':
      return share(terms, totals.sequences * totals.maxNewTokens, 'sequences × maxNewTokens');
    case 'sum':
      return share(terms, totals.sequences, 'sequences');
  }
}

/** Σ values ÷ a count over the whole step. */
export function share(values: Tensor, total: number, what: string): Tensor {
  if (!(total > 0))
    throw new AttuneError(`The step's number of ${what} is ${total}; count it over the whole step before the losses.`);
  return values.sum().div(total);
}
