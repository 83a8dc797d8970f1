/**
 * On-policy distillation: the reverse KL to a teacher on the policy's own responses (GKD, Agarwal et al. 2024, with λ =
 * 1 and the reverse KL; Gu et al. 2024). As in GKD, no gradient flows through the sampling of earlier tokens.
 *
 *   loss        KL(πθ‖teacher) = Σ πθ (log πθ − log teacher) over the whole vocabulary at every token
 *   advantage   −r·A with A = lpTeacher − lpOld of the sampled token: under πold its gradient has the same mean
 */
import { AttuneError } from '../../errors.ts';
import { definePolicyAlgorithm } from './policy.ts';

/** On-policy distillation (Agarwal et al. 2024): compares every token of the policy's own responses with a teacher. */
export const opd = definePolicyAlgorithm({
  name: 'opd',
  aliases: ['on-policy-distillation', 'gkd'],
  summary: 'reverse KL to a teacher at every token of the policy’s own responses; needs no reward',
  paper: 'Agarwal et al. 2024, "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes"',
  advantage: 'teacher',
  aggregation: 'token',
  klIn: 'none',
  defaults: { distillAs: 'loss' },
  terms: ({ ratio, advantages, teacherKl, options }) => {
    if (options.distillAs === 'advantage') return { policy: ratio.mul(advantages).neg() };
    if (teacherKl === undefined)
      throw new AttuneError('On-policy distillation as a loss needs "teacherKl" in its batch.');
    return { policy: teacherKl };
  },
});
