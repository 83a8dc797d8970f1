/** −logσ(β(mean lp_w − mean lp_l) − γ), γ = β·gammaBetaRatio. */
import { definePreferenceLoss, meanLogProb } from './preference.ts';

/** SimPO (Meng et al. 2024): mean log-probs as the reward, with a target margin; no reference. */
export const simpo = definePreferenceLoss({
  name: 'simpo',
  summary: 'token-mean log-probs as the reward, with a target margin and without a reference',
  paper: 'Meng et al. 2024, "SimPO: Simple Preference Optimization with a Reference-Free Reward"',
  needsReference: false,
  defaults: { beta: 2, gammaBetaRatio: 0.5 },
  score: meanLogProb,
  terms: ({ w, l, options }) => w.sub(l).sub(options.gammaBetaRatio).mul(options.beta).logSigmoid().neg(),
});
