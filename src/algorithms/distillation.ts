/**
 * Distillation on given text: at every trained token the target is the teacher's distribution, the text's own token, or
 * a mixture.
 *
 *   loss = (1 − α)·NLL + α·T²·KL(teacher‖student)
 *
 * Both distributions in the KL are softmax(logits / T). The KL's gradient shrinks as 1/T², so the factor T² keeps the
 * balance of the two terms (Hinton et al. 2015, section 2).
 */
import { scope, type Tensor } from '../tensor/index.ts';
import { share } from './aggregation.ts';
import type { LossResult, Metrics } from './metrics.ts';

/** The balance of text and teacher. */
export interface DistillationOptions {
  /** α: 1 learns from the teacher alone, 0 from the text alone. */
  share: number;
  /** T of the KL. The NLL is always at temperature 1. */
  temperature: number;
}

/**
 * Σ over the trained tokens ÷ the step's number of them; all tensors are [n] over these tokens. `lp` needs a gradient
 * if α is below 1.
 */
export function distillationLoss(
  { kl, lp, entropy }: { kl: Tensor; lp: Tensor; entropy?: Tensor },
  { share: alpha, temperature }: DistillationOptions,
  totals: { tokens: number },
): LossResult {
  return scope(() => {
    const mean = (values: Tensor) => share(values, totals.tokens, 'tokens');
    const [nll, divergence] = [mean(lp).neg(), mean(kl)];
    const towards = divergence.mul(alpha * temperature ** 2);
    const loss = alpha === 1 ? towards : nll.mul(1 - alpha).add(towards);
    const metrics: Metrics = { loss: loss.detach(), nll: nll.detach(), teacher_kl: divergence.detach() };
    if (entropy !== undefined) metrics.entropy = mean(entropy.detach());
    return { loss, metrics };
  });
}
