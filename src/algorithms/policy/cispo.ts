/** −sg(clip(r))·A·lp: the clip bounds a token's weight. Unlike in PPO, a clipped token keeps its gradient. */
import { noGrad } from '../../tensor/index.ts';
import { definePolicyAlgorithm } from './policy.ts';

/** CISPO (MiniMax 2025): REINFORCE with clipped importance weights. */
export const cispo = definePolicyAlgorithm({
  name: 'cispo',
  summary: 'policy gradient with clipped importance weights; every token keeps its gradient',
  paper: 'MiniMax 2025, "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention"',
  advantage: 'group-z',
  aggregation: 'token',
  klIn: 'loss',
  defaults: { clipLow: 0.2, clipHigh: 0.4, klCoef: 0 },
  terms: ({ lp, ratio, advantages, options }) => {
    const low = 1 - options.clipLow;
    const high = 1 + options.clipHigh;
    const weight = ratio.detach().clamp(low, high);
    return {
      policy: weight.mul(advantages).mul(lp).neg(),
      clipped: noGrad(() => ratio.lt(low).logicalOr(ratio.gt(high)).to(lp.dtype)),
    };
  },
});
