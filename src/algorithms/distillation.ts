/**
 * Distillation on given text: the teacher's distribution at every trained token in place of, or beside, the text's own token.
 *
 *   loss = (1 − α)·NLL + α·T²·KL(teacher‖student)
 *
 * Both distributions of the KL are softmax(logits / T). Its gradient falls as 1/T² when T grows; times T² the two terms keep
 * their shares (Hinton et al. 2015, section 2).
 */
import { scope, type Tensor } from '../tensor/index.ts';
import { share } from './aggregation.ts';
import type { LossResult, Metrics } from './metrics.ts';

/** How text and teacher are weighed. */
export interface DistillationOptions {
  /** α: 1 learns from the teacher alone, 0 from the text alone. */
  share: number;
  /** T of the KL; the NLL is always that of the model itself. */
  temperature: number;
}

/** Σ over the trained tokens ÷ the step's; all tensors [n] hold those tokens only. `lp` needs a gradient where α is below 1. */
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
