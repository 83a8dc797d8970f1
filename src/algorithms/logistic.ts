/** The logistic loss of the Bradley–Terry model, used by DPO and reward models. */
import type { Tensor } from '../tensor/index.ts';

/** −(1−ε)·logσ(z) − ε·logσ(−z), where ε is the probability that a label is flipped. */
export function smoothedLogistic(z: Tensor, epsilon: number): Tensor {
  const right = z.logSigmoid().mul(epsilon - 1);
  return epsilon === 0 ? right : right.sub(z.neg().logSigmoid().mul(epsilon));
}
