/**
 * λ_w(1 − σ(β(d_w − z0))) for desirable responses and λ_l(1 − σ(β(z0 − d_l))) for undesirable ones. z0 is the reference
 * point of prospect theory: an estimate of KL(πθ‖πref) over the whole step, without gradient.
 */
import { AttuneError } from '../../errors.ts';
import { meanOf } from '../advantages.ts';
import { type Baseline, definePreferenceLoss, type PairTerms } from './preference.ts';

/** KTO (Ethayarajh et al. 2024): learns from unpaired good and bad responses. */
export const kto = definePreferenceLoss({
  name: 'kto',
  summary: 'good and bad responses judged one by one against the policy’s drift; takes unpaired data',
  paper: 'Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization"',
  paired: false,
  baseline: 'mismatched',
  defaults: { beta: 0.1, desirableWeight: 1, undesirableWeight: 1 },
  terms: valueTerms,
});

/** KTO's loss on preference pairs. */
export const ktoPair = definePreferenceLoss({
  name: 'kto-pair',
  summary: 'KTO on pairs: each side is measured against the drift of the other; half of both per pair',
  paper: 'Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization"',
  baseline: 'pairs',
  defaults: { beta: 0.1 },
  terms: (input) => valueTerms(input).map((part) => part.div(2)),
});

function valueTerms({ w, l, options, totals }: PairTerms) {
  const z0 = totals.baseline;
  if (z0 === undefined) throw new AttuneError('KTO needs z0 of the whole step: put `baseline` into its totals.');
  const { beta, desirableWeight, undesirableWeight } = options;
  // 1 − σ(x) = σ(−x)
  const desirable = w.sub(z0.chosen).mul(-beta).sigmoid().mul(desirableWeight);
  const undesirable = l.sub(z0.rejected).mul(beta).sigmoid().mul(undesirableWeight);
  return [desirable, undesirable];
}

/** KTO's z0 = max(0, mean d) over responses to other prompts. A step of one example has none, so z0 is 0. */
export function mismatchedBaseline(logRatios: ArrayLike<number>): Baseline {
  const z0 = Math.max(0, meanOf(logRatios));
  return { chosen: z0, rejected: z0 };
}

/** z0 of `ktoPair`: each side uses the KL estimate of the other side, from the log-ratios of the step's pairs. */
export function pairsBaseline(chosenLogRatios: ArrayLike<number>, rejectedLogRatios: ArrayLike<number>): Baseline {
  return { chosen: Math.max(0, meanOf(rejectedLogRatios)), rejected: Math.max(0, meanOf(chosenLogRatios)) };
}

/**
 * Pairs [prompt, response] for `mismatchedBaseline`: each prompt with the response of the next example that has a
 * different prompt. Empty if all prompts are equal.
 */
export function mismatchedPairs(prompts: ArrayLike<string | number>): [prompt: number, response: number][] {
  const out: [number, number][] = [];
  for (let i = 0; i < prompts.length; i++) {
    for (let step = 1; step < prompts.length; step++) {
      const j = (i + step) % prompts.length;
      if (prompts[j] === prompts[i]) continue;
      out.push([i, j]);
      break;
    }
  }
  return out;
}
