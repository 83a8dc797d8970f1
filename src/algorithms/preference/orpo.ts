/**
 * NLL(y_w) − β·logσ(log odds_w − log odds_l), odds = p/(1 − p) with p = exp(token-mean log-prob). The NLL is each
 * chosen response's token mean, averaged over pairs (eq. 2 and 6 of the paper).
 */
import type { Tensor } from '../../tensor/index.ts';
import { definePreferenceLoss, meanLogProb } from './preference.ts';

/** ORPO (Hong et al. 2024): supervised loss on the chosen response plus an odds-ratio penalty; no reference. */
export const orpo = definePreferenceLoss({
  name: 'orpo',
  summary: 'supervised loss on the chosen response plus an odds-ratio penalty; no reference',
  paper: 'Hong et al. 2024, "ORPO: Monolithic Preference Optimization without Reference Model"',
  needsReference: false,
  defaults: { beta: 0.1 },
  score: meanLogProb,
  terms: ({ w, l, options }) => {
    const penalty = logOdds(w).sub(logOdds(l)).logSigmoid().mul(options.beta);
    return w.add(penalty).neg();
  },
});

/** log p − log(1 − p). p is kept just below 1, so that 1 − p is not 0. */
function logOdds(logp: Tensor): Tensor {
  return logp.sub(logp.clamp(null, -1e-7).expm1().neg().log());
}
