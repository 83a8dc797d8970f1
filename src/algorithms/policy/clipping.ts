/** The clipped surrogate of PPO (Schulman et al. 2017, eq. 7), also used by GRPO and its variants. */
import { noGrad, type Tensor } from '../../tensor/index.ts';
import type { Terms } from './policy.ts';

/** −min(rA, clip(r, 1−low, 1+high)·A), and the tokens at which the clip is active, where the gradient is 0. */
export function clippedSurrogate(ratio: Tensor, advantages: Tensor, low: number, high: number): Terms {
  const bounded = ratio.clamp(1 - low, 1 + high);
  const policy = ratio.mul(advantages).minimum(bounded.mul(advantages)).neg();
  const clipped = noGrad(() => {
    const above = ratio.gt(1 + high).logicalAnd(advantages.gt(0));
    const below = ratio.lt(1 - low).logicalAnd(advantages.lt(0));
    return above.logicalOr(below).to(ratio.dtype);
  });
  return { policy, clipped, ratio };
}
