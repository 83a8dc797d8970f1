/**
 * Estimates of KL(πθ‖πref) from one sampled token, with ℓ = lp − lpRef (Schulman, "Approximating KL Divergence", 2020).
 *
 *   k1 = ℓ        unbiased, noisy; used in rewards
 *   k2 = ℓ²/2     biased, never negative
 *   k3 = e^{−ℓ} + ℓ − 1   unbiased, never negative; used in losses
 *
 * k1 is useless in a loss: E[∇ lp] = 0, so it would add only noise. In a loss the gradient of k2 is that of
 * KL(πθ‖πref), and the gradient of k3 is that of KL(πref‖πθ).
 */
import type { Tensor } from '../tensor/index.ts';

/** An estimate of the KL divergence; src/algorithms/kl.ts gives the formulas. */
export type KlEstimator = 'k1' | 'k2' | 'k3';

/** The chosen KL estimate at every sampled token. */
export function klTerms(kind: KlEstimator, lp: Tensor, lpRef: Tensor): Tensor {
  const l = lp.sub(lpRef);
  switch (kind) {
    case 'k1':
      return l;
    case 'k2':
      return l.square().div(2);
    case 'k3':
      // expm1 keeps the digits that e^{−ℓ} − 1 loses near ℓ = 0
      return l.neg().expm1().add(l);
  }
}
