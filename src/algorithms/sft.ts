/** Supervised fine-tuning: the mean NLL of the trained tokens (the assistant's, or all of a plain text). */
import { scope, type Tensor } from '../tensor/index.ts';
import { share } from './aggregation.ts';
import type { LossResult, Metrics } from './metrics.ts';

/** −Σ lp ÷ the step's trained tokens; `lp` [n] holds only those tokens. exp(loss) of a whole step is its perplexity. */
export function sftLoss(batch: { lp: Tensor; entropy?: Tensor }, totals: { tokens: number }): LossResult {
  return scope(() => {
    const mean = (values: Tensor) => share(values, totals.tokens, 'tokens');
    const loss = mean(batch.lp).neg();
    const metrics: Metrics = { loss: loss.detach() };
    if (batch.entropy !== undefined) metrics.entropy = mean(batch.entropy.detach());
    return { loss, metrics };
  });
}
