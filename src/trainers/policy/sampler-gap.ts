/**
 * The difference between the sampler's and the trainer's log-probs under the same weights. The sampler decodes one
 * token at a time with a cache, the trainer computes whole packed sequences. Every ratio assumes that both agree, so
 * the difference is measured at every step and bounded.
 *
 *   float32: largest |Δ| 1e-3. Rounding gives 1e-6 to 1e-4; a wrong position, mask or temperature gives 1e-1 and more.
 *   bfloat16, float16: mean |Δ| 0.05, largest 2. Eight bits of mantissa give a mean of 0.005 to 0.02 and rare outliers.
 *   a cache in 8 bits (--cache-dtype int8): the same bounds in any dtype. The trainer's own keys and values are never rounded.
 */

import type { StepTotals } from '../../algorithms/index.ts';
import { AttuneError } from '../../errors.ts';
import { readLater, type Started } from '../../models/decoder/responses.ts';
import type { CacheDtype } from '../../models/index.ts';
import { type DType, noGrad, stack, type Tensor } from '../../tensor/index.ts';
import type { PolicyConfig } from './config.ts';

export interface SamplerGap {
  mean: number;
  max: number;
}

const gapBounds = (dtype: DType, cacheDtype: CacheDtype): SamplerGap =>
  cacheDtype === 'model' && (dtype === 'float32' || dtype === 'float64')
    ? { mean: 1e-3, max: 1e-3 }
    : { mean: 0.05, max: 2 };

/**
 * The gap as metrics. It is read after backward has been queued, so that the GPU does not wait for the host, and before
 * the update, so that a run with wrong ratios stops in time.
 */
export function startSamplerGap(
  lp: Tensor,
  sampled: Tensor,
  dtype: DType,
  {
    config,
    step,
    totals,
  }: { config: Pick<PolicyConfig, 'maxSamplerGap' | 'cacheDtype'>; step: number; totals: StepTotals },
): Started<Record<string, number>> {
  const tokens = lp.size(0);
  const started = noGrad(() => {
    const difference = lp.detach().sub(sampled).abs();
    return readLater(stack([difference.sum(), difference.max()]));
  });
  const read = () => {
    const [sum, max] = started.read() as ArrayLike<number> as [number, number];
    checkSamplerGap({ mean: sum / tokens, max }, dtype, step, config);
    return { sampler_gap: sum / totals.tokens, sampler_gap_max: max };
  };
  return { read, drop: started.drop };
}

export function checkSamplerGap(
  gap: SamplerGap,
  dtype: DType,
  step: number,
  { maxSamplerGap: maxAllowed, cacheDtype = 'model' }: Partial<Pick<PolicyConfig, 'maxSamplerGap' | 'cacheDtype'>> = {},
): void {
  const bounds = gapBounds(dtype, cacheDtype);
  const limit = { mean: bounds.mean, max: maxAllowed ?? bounds.max };
  if (maxAllowed !== undefined) limit.mean = Math.max(bounds.mean, maxAllowed);
  if (gap.mean <= limit.mean && gap.max <= limit.max) return;
  throw new AttuneError(
    `Step ${step}: the sampler and the trainer disagree about the log-probs of the same tokens under the same weights: ` +
      `mean ${gap.mean.toExponential(2)} (allowed ${limit.mean}), largest ${gap.max.toExponential(2)} (allowed ${limit.max}) in ${dtype}` +
      `${cacheDtype === 'model' ? '' : ` with a cache in ${cacheDtype}`}. ` +
      'Every ratio π/πold would be wrong, so the run stops before the update. Usual causes: a model whose cached and packed ' +
      'passes differ (a fault to report), sampling penalties that change logits, dropout left on, or a dtype too narrow for ' +
      `the model: try --dtype float32${cacheDtype === 'model' ? '' : ' or --cache-dtype model'}. --max-sampler-gap sets another limit.`,
  );
}
