/** s = exp(mean_t(lp − lpOld)): one ratio per response, because there is one reward per response. */
import { repeatOverTokens, segmentMean } from '../segments.ts';
import { clippedSurrogate } from './clipping.ts';
import { definePolicyAlgorithm } from './policy.ts';

/** GSPO (Zheng et al. 2025): GRPO with one length-normalised ratio per response. */
export const gspo = definePolicyAlgorithm({
  name: 'gspo',
  summary: 'GRPO with one length-normalised ratio per response',
  paper: 'Zheng et al. 2025, "Group Sequence Policy Optimization"',
  advantage: 'group-z',
  aggregation: 'sequence',
  klIn: 'loss',
  defaults: { clipLow: 3e-4, clipHigh: 4e-4, klCoef: 0 },
  terms: ({ lp, lpOld, advantages, segments, options }) => {
    const ratio = repeatOverTokens(segmentMean(lp.sub(lpOld), segments).exp(), segments);
    return clippedSurrogate(ratio, advantages, options.clipLow, options.clipHigh);
  },
});
