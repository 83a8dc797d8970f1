/** DPO, and losses that differ from it only in the function of z = β(d_w − d_l). */
import type { Tensor } from '../../tensor/index.ts';
import { smoothedLogistic } from '../logistic.ts';
import { definePreferenceLoss, meanLogRatio, type PairTerms } from './preference.ts';

function logistic({ w, l, options }: PairTerms): Tensor {
  return smoothedLogistic(w.sub(l).mul(options.beta), options.labelSmoothing);
}

/** DPO (Rafailov et al. 2023): the logistic loss of the two responses' log-ratios to the reference. */
export const dpo = definePreferenceLoss({
  name: 'dpo',
  aliases: ['sigmoid'],
  summary: '−logσ(β(d_w − d_l))',
  paper: 'Rafailov et al. 2023, "Direct Preference Optimization: Your Language Model is Secretly a Reward Model"',
  defaults: { beta: 0.1, labelSmoothing: 0 },
  terms: logistic,
});

/** Conservative DPO (Mitchell 2023): DPO with label smoothing. */
export const cdpo = definePreferenceLoss({
  name: 'cdpo',
  aliases: ['conservative'],
  summary: 'DPO that expects a share ε of the labels to be wrong',
  paper: 'Mitchell 2023, "A note on DPO with noisy preferences & relationship to IPO"',
  defaults: { beta: 0.1, labelSmoothing: 0.1 },
  terms: logistic,
});

/** Robust DPO (Chowdhury et al. 2024): unbiased under a known share of flipped labels. */
export const robust = definePreferenceLoss({
  name: 'robust',
  summary: 'DPO made unbiased under a share ε of wrong labels',
  paper: 'Chowdhury et al. 2024, "Provably Robust DPO: Aligning Language Models with Noisy Feedback"',
  defaults: { beta: 0.1, labelSmoothing: 0.1 },
  terms: ({ w, l, options: { beta, labelSmoothing: e } }) => {
    const z = w.sub(l).mul(beta);
    const flipped = z.neg().logSigmoid().mul(e);
    return z
      .logSigmoid()
      .mul(e - 1)
      .add(flipped)
      .div(1 - 2 * e);
  },
});

/** The hinge loss of SLiC (Zhao et al. 2023) on DPO's margin. */
export const hinge = definePreferenceLoss({
  name: 'hinge',
  summary: 'max(0, 1 − β(d_w − d_l))',
  paper:
    'Zhao et al. 2023, "SLiC-HF"; Liu et al. 2024, "Statistical Rejection Sampling Improves Preference Optimization"',
  defaults: { beta: 0.1 },
  terms: ({ w, l, options }) => w.sub(l).mul(-options.beta).add(1).relu(),
});

/** DPO with log-ratios divided by response length (Lambert et al. 2024). */
export const dpoNorm = definePreferenceLoss({
  name: 'dpo-norm',
  aliases: ['sigmoid-norm'],
  summary: 'DPO on token-mean log-probs, so that length alone earns nothing',
  paper: 'Lambert et al. 2024, "Tülu 3: Pushing Frontiers in Open Language Model Post-Training"',
  defaults: { beta: 2, labelSmoothing: 0 },
  score: meanLogRatio,
  terms: logistic,
});
