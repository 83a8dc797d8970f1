/**
 * The options of policy algorithms. Each algorithm reads those in its `defaults`, and refuses the others
 * (../options.ts).
 */
import type { Aggregation } from '../aggregation.ts';

/** The options of all policy algorithms; each algorithm reads those in its `defaults`. */
export interface PolicyOptions {
  /** Weight of the KL to the reference: β in losses, klCoef in rewards. */
  klCoef: number;
  /** The KL estimate in the loss. */
  klEstimator: 'k2' | 'k3';
  /** Multiplies the KL term by r, so that its gradient is also right for rollouts of an older policy. */
  klTimesRatio: boolean;
  /** The ratio is clipped to [1 − clipLow, 1 + clipHigh]. */
  clipLow: number;
  clipHigh: number;
  aggregation: Aggregation;
  entropyCoef: number;
  valueCoef: number;
  valueClip: number;
  gamma: number;
  lambda: number;
  /** Whitens advantages over the step. */
  whiten: boolean;
  /** Temperatures of SAPO's soft gate. */
  tauPositive: number;
  tauNegative: number;
  /**
   * How the policy learns from a teacher: by its log-probs of the sampled tokens, or by the KL over the whole
   * vocabulary.
   */
  distillAs: 'advantage' | 'loss';
  // —— read by the trainer, not by the loss ——
  /** Passes over the rollouts of a step. */
  ppoEpochs: number;
  /** Ends the passes when KL(πold‖πθ) per token (`old_kl`) exceeds this; 0 = never. */
  targetKl: number;
  /** Adapts klCoef (adaptive-kl.ts). */
  adaptiveKl: boolean;
  /** Drops groups whose responses are all right or all wrong. */
  dropEqualGroups: boolean;
  /** Length of the overlong ramp as a share of maxNewTokens; 0 = no penalty. */
  overlongRamp: number;
}

/** Every option off. An algorithm sees these values for options that it does not read. */
export const neutralOptions: PolicyOptions = {
  klCoef: 0,
  klEstimator: 'k3',
  klTimesRatio: false,
  clipLow: Number.POSITIVE_INFINITY,
  clipHigh: Number.POSITIVE_INFINITY,
  aggregation: 'sequence',
  entropyCoef: 0,
  valueCoef: 0,
  valueClip: Number.POSITIVE_INFINITY,
  gamma: 1,
  lambda: 1,
  whiten: false,
  tauPositive: 1,
  tauNegative: 1,
  distillAs: 'advantage',
  ppoEpochs: 1,
  targetKl: 0,
  adaptiveKl: false,
  dropEqualGroups: false,
  overlongRamp: 0,
};

/** Options that every algorithm accepts besides its own. */
export const commonOptions = { entropyCoef: 0, ppoEpochs: 1, targetKl: 0 };

/** More options of algorithms that learn from rewards. */
export const rewardOptions = { dropEqualGroups: false, overlongRamp: 0 };

/** More options of algorithms with the KL in the loss. */
export const klInLossOptions = { klCoef: 0, klEstimator: 'k3' as const, klTimesRatio: false };
