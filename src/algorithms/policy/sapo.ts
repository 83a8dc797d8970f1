/** −(4/τ)·σ(τ(r − 1))·A: a soft gate instead of the clip. At r = 1 its slope equals that of r. */
import { full, where } from '../../tensor/index.ts';
import { definePolicyAlgorithm } from './policy.ts';

/** SAPO (Gao et al. 2025): GRPO with a smooth gate on the ratio instead of the clip. */
export const sapo = definePolicyAlgorithm({
  name: 'sapo',
  summary: 'GRPO with a smooth gate on the ratio, tighter for negative advantages',
  paper: 'Gao et al. 2025, "Soft Adaptive Policy Optimization"',
  advantage: 'group-z',
  aggregation: 'sequence',
  klIn: 'none',
  defaults: { tauPositive: 1, tauNegative: 1.05 },
  terms: ({ ratio, advantages, options }) => {
    const tau = where(advantages.gt(0), full([], options.tauPositive, ratio), full([], options.tauNegative, ratio));
    const gate = ratio.sub(1).mul(tau).sigmoid().mul(4).div(tau);
    return { policy: gate.mul(advantages).neg() };
  },
});
