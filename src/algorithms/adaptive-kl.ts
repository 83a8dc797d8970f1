/**
 * The next KL coefficient, steering KL(πθ‖πref) towards a target (Ziegler et al. 2019, section 2.2):
 *
 *   e = clip(KL/target − 1, −0.2, 0.2),   klCoef ← klCoef·(1 + gain·e)
 *
 * KL is that of a whole response: the mean over responses of Σ_t k1_t.
 */
export function adaptedKlCoef(klCoef: number, observedKl: number, targetKl: number, gain = 0.1): number {
  const error = Math.min(0.2, Math.max(-0.2, observedKl / targetKl - 1));
  return klCoef * (1 + gain * error);
}
