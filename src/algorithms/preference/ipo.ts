/**
 * (h − 1/(2β))² with h = d_w − d_l: the margin has a target instead of growing without bound. h is not multiplied by β
 * (eq. 17).
 */
import { definePreferenceLoss, logRatio, meanLogRatio } from './preference.ts';

/** IPO (Azar et al. 2023): regression of the difference of log-ratios onto 1/(2β). */
export const ipo = definePreferenceLoss({
  name: 'ipo',
  summary: 'regression of the log-ratio difference onto 1/(2β); `lengthNormalize` takes token means',
  paper: 'Azar et al. 2023, "A General Theoretical Paradigm to Understand Learning from Human Preferences"',
  defaults: { beta: 0.1, lengthNormalize: false },
  score: (side, options) => (options.lengthNormalize ? meanLogRatio : logRatio)(side, options),
  terms: ({ w, l, options }) =>
    w
      .sub(l)
      .sub(1 / (2 * options.beta))
      .square(),
});
