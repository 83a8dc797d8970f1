/** Scores rollouts: every scorer is called once for the whole batch. */
import { isRight, type RewardItem, type RewardScorer, scoreParts } from '../rewards/index.ts';
import { frozenCopy } from '../rewards/program/batch.ts';
import { type Rollout, rewardItem } from './rollout.ts';

/** Sets each rollout's score and parts by the scorer, and `correct` by the verifier. */
export async function scoreRollouts(
  scorer: RewardScorer,
  rollouts: readonly Rollout[],
  signal?: AbortSignal,
): Promise<void> {
  const items = rollouts.map((rollout) => frozenCopy(rewardItem(rollout)));
  const { total, parts } = await scoreParts(scorer, items, { signal });
  for (const [i, rollout] of rollouts.entries()) {
    rollout.score = total[i] as number;
    rollout.parts = Object.fromEntries(Object.entries(parts).map(([name, values]) => [name, values[i] as number]));
    rollout.correct = isRight(items[i] as RewardItem);
  }
}
