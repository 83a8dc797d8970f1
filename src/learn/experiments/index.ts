/** The experiment of each chapter, by its number. */
import { bradleyTerry } from './bradley-terry.ts';
import { directAlignment } from './direct-alignment.ts';
import type { Experiment } from './experiment.ts';
import { groupRelative } from './group-relative.ts';
import { klEstimators } from './kl-estimators.ts';
import { outcomeProcess } from './outcome-process.ts';
import { overOptimisation } from './over-optimisation.ts';
import { policyGradient } from './policy-gradient.ts';
import { scale } from './scale.ts';
import { sft } from './sft.ts';
import { verifiableRewards } from './verifiable-rewards.ts';

export const experiments: Record<number, Experiment> = {
  1: sft,
  2: bradleyTerry,
  3: outcomeProcess,
  4: policyGradient,
  5: groupRelative,
  6: klEstimators,
  7: directAlignment,
  8: overOptimisation,
  9: verifiableRewards,
  10: scale,
};
