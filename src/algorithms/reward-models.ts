/**
 * Losses of reward models: preference (Bradley–Terry), outcome (ORM), process (PRM). All divide by counts over the
 * whole step.
 */
import { noGrad, scope, type Tensor } from '../tensor/index.ts';
import { share } from './aggregation.ts';
import { smoothedLogistic } from './logistic.ts';
import type { LossResult, Metrics } from './metrics.ts';
import { repeatOverTokens, type Segments } from './segments.ts';

/** Label smoothing and reward centring of `preferenceRewardLoss`. */
export interface PreferenceRewardOptions {
  /** The probability that a label is flipped. */
  labelSmoothing?: number;
  /** c in c·(r_w + r_l)², which keeps rewards around 0 (Eisenstein et al. 2023). */
  centring?: number;
}

/**
 * −logσ(r_w − r_l − margin) + c·(r_w + r_l)², mean over the step's pairs (Ouyang et al. 2022; margin: Touvron et al.
 * 2023).
 */
export function preferenceRewardLoss(
  batch: { chosen: Tensor; rejected: Tensor; margin?: Tensor },
  totals: { pairs: number },
  { labelSmoothing = 0, centring = 0 }: PreferenceRewardOptions = {},
): LossResult {
  return scope(() => {
    const { chosen, rejected, margin } = batch;
    const difference = chosen.sub(rejected);
    const z = margin === undefined ? difference : difference.sub(margin);
    let terms = smoothedLogistic(z, labelSmoothing);
    if (centring !== 0) terms = terms.add(chosen.add(rejected).square().mul(centring));
    const mean = (values: Tensor) => share(values, totals.pairs, 'pairs');
    const loss = mean(terms);
    const metrics = noGrad(() => ({
      loss: loss.detach(),
      accuracy: mean(difference.detach().sign().add(1).div(2)),
      chosen_reward: mean(chosen.detach()),
      rejected_reward: mean(rejected.detach()),
      margin: mean(difference.detach()),
    }));
    return { loss, metrics };
  });
}

/** The denominators of a step of an outcome reward model. */
export interface OutcomeTotals {
  /** Number of response tokens in the step. */
  tokens: number;
  /** Number of correct and of wrong responses in the step. */
  correct: number;
  incorrect: number;
}

/**
 * Binary cross-entropy of every response token against the response's correctness (Cobbe et al. 2021). `logits` [n] are
 * packed, `correct` [responses] is 0 or 1.
 */
export function outcomeRewardLoss(
  batch: { logits: Tensor; correct: Tensor; segments: Segments },
  totals: OutcomeTotals,
): LossResult {
  return scope(() => {
    const { logits, correct, segments } = batch;
    const labels = repeatOverTokens(correct, segments);
    const loss = share(logits.mul(labels).sub(softplus(logits)).neg(), totals.tokens, 'tokens');
    const metrics = noGrad(() => {
      const ends = segments.lengths.cumsum(0).sub(1).to('int64');
      const scores = logits.detach().indexSelect(0, ends).sigmoid();
      const right = scores.gt(0.5).to(scores.dtype).eq(correct).to(scores.dtype);
      const out: Metrics = {
        loss: loss.detach(),
        accuracy: share(right, totals.correct + totals.incorrect, 'responses'),
      };
      if (totals.correct > 0) out.correct_score = share(scores.mul(correct), totals.correct, 'right responses');
      if (totals.incorrect > 0)
        out.incorrect_score = share(scores.sub(scores.mul(correct)), totals.incorrect, 'wrong responses');
      return out;
    });
    return { loss, metrics };
  });
}

// log(1 + e^x) through logσ, which does not overflow and keeps small values
function softplus(x: Tensor): Tensor {
  return x.neg().logSigmoid().neg();
}

/**
 * Three-class cross-entropy at each step's end token (Lightman et al. 2023). `logits` [steps, 3] for −1, 0, +1 in that
 * order; `labels` [steps] holds −1, 0 or +1.
 */
export function processRewardLoss(batch: { logits: Tensor; labels: Tensor }, totals: { steps: number }): LossResult {
  return scope(() => {
    const classes = batch.labels.to('int64').add(1);
    const picked = batch.logits.logSoftmax(-1).gather(1, classes.unsqueeze(1));
    const loss = share(picked.neg(), totals.steps, 'steps');
    const metrics = noGrad(() => ({
      loss: loss.detach(),
      step_accuracy: share(batch.logits.argmax(-1).eq(classes).to(batch.logits.dtype), totals.steps, 'steps'),
    }));
    return { loss, metrics };
  });
}
