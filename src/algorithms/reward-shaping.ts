/** Changes rewards, and selects responses, before advantages are computed. */
import { membersOf } from './advantages.ts';

/**
 * Soft overlong punishment (DAPO, Yu et al. 2025, eq. 13), added to R: 0 up to L − C tokens, then linear down to −1 at
 * L. L is the longest response allowed, C the length of the ramp.
 */
export function overlongPenalty(lengthTokens: number, maxTokens: number, rampTokens: number): number {
  const over = lengthTokens - (maxTokens - rampTokens);
  if (over <= 0) return 0;
  return over >= rampTokens ? -1 : -over / rampTokens;
}

/** Subtracts the penalty from the reward of a response that was cut off at maxNewTokens. */
export function withEosPenalty(reward: number, endedProperly: boolean, penalty: number): number {
  return endedProperly ? reward : reward - penalty;
}

/**
 * DAPO's dynamic sampling: true for responses of groups with both right and wrong responses. Other groups are dropped,
 * because their advantages are 0.
 */
export function inMixedGroup(correct: ArrayLike<number | boolean>, groups: ArrayLike<number>): boolean[] {
  const kept = new Array<boolean>(groups.length).fill(false);
  for (const group of membersOf(groups)) {
    const first = Number(correct[group[0] as number]);
    const varied = group.some((i) => Number(correct[i]) !== first);
    for (const i of group) kept[i] = varied;
  }
  return kept;
}

/**
 * RAFT's selection (Dong et al. 2023): true for the response with the highest reward of each group, the first if
 * several tie. A group with equal rewards has no best response.
 */
export function bestOfGroup(rewards: ArrayLike<number>, groups: ArrayLike<number>): boolean[] {
  const kept = new Array<boolean>(groups.length).fill(false);
  const reward = (i: number) => rewards[i] as number;
  for (const group of membersOf(groups)) {
    const best = group.reduce((top, i) => (reward(i) > reward(top) ? i : top));
    kept[best] = group.some((i) => reward(i) < reward(best));
  }
  return kept;
}
