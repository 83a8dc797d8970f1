/**
 * Anchored preference optimisation: controls whether the probability of each response rises or falls, not only their
 * difference.
 */
import { definePreferenceLoss } from './preference.ts';

const paper = 'D’Oosterlinck et al. 2024, "Anchored Preference Optimization and Contrastive Revisions"';

/** APO-zero (D'Oosterlinck et al. 2024): raises chosen and lowers rejected responses. */
export const apoZero = definePreferenceLoss({
  name: 'apo-zero',
  summary: '−σ(βd_w) + σ(βd_l): chosen up, rejected down; for chosen responses better than the model’s own',
  paper,
  defaults: { beta: 0.1 },
  terms: ({ w, l, options: { beta } }) => l.mul(beta).sigmoid().sub(w.mul(beta).sigmoid()),
});

/** APO-down (D'Oosterlinck et al. 2024): lowers both, rejected responses more. */
export const apoDown = definePreferenceLoss({
  name: 'apo-down',
  summary: 'σ(βd_w) − σ(β(d_w − d_l)): both down, rejected more; for chosen responses worse than the model’s own',
  paper,
  defaults: { beta: 0.1 },
  terms: ({ w, l, options: { beta } }) => w.mul(beta).sigmoid().sub(w.sub(l).mul(beta).sigmoid()),
});
