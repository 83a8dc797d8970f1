/** Computes the advantages of a step's rollouts from their rewards. */
import {
  bestOfGroup,
  inMixedGroup,
  type PolicyAlgorithm,
  type PolicyOptions,
  policyAdvantages,
} from '../../algorithms/index.ts';
import { packedNumbers, type Rollout } from '../../rollouts/rollout.ts';
import { teacherGap } from '../teacher/responses.ts';

/** Sets `advantages`, `advantage` and, with a critic, `returns` of every rollout. */
export function computeAdvantages(
  algorithm: PolicyAlgorithm,
  options: PolicyOptions,
  rollouts: readonly Rollout[],
): void {
  if (rollouts.length === 0) return;
  const first = rollouts[0] as Rollout;
  const known = rollouts.every(({ correct }) => correct !== undefined);
  const { perToken, perResponse, returns } = policyAdvantages(algorithm, options, {
    rewards: rollouts.map(({ reward }) => reward),
    groups: rollouts.map(({ group }) => group),
    lengths: rollouts.map(({ responseIds }) => responseIds.length),
    ...(known ? { correct: rollouts.map(({ correct }) => Number(correct)) } : {}),
    ...(first.lpRef === undefined ? {} : { k1: packedNumbers(rollouts, tokenKl) }),
    ...(first.lpTeacher === undefined ? {} : { teacher: packedNumbers(rollouts, teacherGap) }),
    ...(first.values === undefined ? {} : { values: packedNumbers(rollouts, ({ values }) => values) }),
  });
  let start = 0;
  for (const [i, rollout] of rollouts.entries()) {
    const end = start + rollout.responseIds.length;
    rollout.advantages = perToken.slice(start, end);
    rollout.advantage = perResponse[i] as number;
    if (returns !== undefined) rollout.returns = returns.slice(start, end);
    start = end;
  }
}

/**
 * Keeps the rollouts of groups with both right and wrong responses; without a verifier, groups with different scores.
 */
export function dropUniformGroups(rollouts: readonly Rollout[]): Rollout[] {
  const kept = inMixedGroup(
    rollouts.map(({ correct, score }) => Number(correct ?? score)),
    rollouts.map(({ group }) => group),
  );
  return rollouts.filter((_, i) => kept[i]);
}

/**
 * The rollouts to train on. Uniform groups are dropped with `dropEqualGroups`; `keeps: 'best'` leaves the best of each
 * group.
 */
export function trainedRollouts(
  { keeps }: PolicyAlgorithm,
  { dropEqualGroups }: PolicyOptions,
  rollouts: readonly Rollout[],
): Rollout[] {
  const mixed = dropEqualGroups ? dropUniformGroups(rollouts) : [...rollouts];
  if (keeps === 'all') return mixed;
  const kept = bestOfGroup(
    mixed.map(({ reward }) => reward),
    mixed.map(({ group }) => group),
  );
  return mixed.filter((_, i) => kept[i]);
}

/** Whether rollouts may be dropped once their rewards are known. */
export const leavesOut = ({ keeps }: PolicyAlgorithm, { dropEqualGroups }: PolicyOptions): boolean =>
  dropEqualGroups || keeps !== 'all';

/** Mean over responses of Σ_t lpOld − lpRef. */
export function responseKl(rollouts: readonly Rollout[]): number {
  const sums = rollouts.map((rollout) => {
    let sum = 0;
    const k1 = tokenKl(rollout);
    for (let t = 0; t < k1.length; t++) sum += k1[t] as number;
    return sum;
  });
  return sums.reduce((total, sum) => total + sum, 0) / rollouts.length;
}

/** The k1 estimate, lpOld − lpRef per token. */
function tokenKl({ lpOld, lpRef }: Rollout): Float64Array {
  const k1 = new Float64Array(lpOld.length);
  for (let t = 0; t < k1.length; t++) k1[t] = (lpOld[t] as number) - (lpRef?.[t] as number);
  return k1;
}

/** Whether advantages depend on log-probs or values under the reference, the critic or the teacher. */
export const needsMeasures = ({ klIn, needsValue, needsTeacher }: PolicyAlgorithm): boolean =>
  klIn === 'reward' || needsValue || needsTeacher;
