/** Scores rollouts. Every scorer is called once with the whole batch. */
import { UserError } from '../errors.ts';
import { isRight, type RewardItem, type RewardScorer, scoreParts } from '../rewards/index.ts';
import { frozenCopy } from '../rewards/program/batch.ts';
import { isReward } from '../rewards/scorer.ts';
import { type Rollout, rewardItem } from './rollout.ts';

/** Sets each rollout's score and parts, `truncated` from a reward model, and `correct` from the verifier. */
export async function scoreRollouts(
  scorer: RewardScorer,
  rollouts: readonly Rollout[],
  signal?: AbortSignal,
): Promise<void> {
  const items = rollouts.map((rollout) => frozenCopy(rewardItem(rollout)));
  const cut = new Set<RewardItem>();
  const { total, parts } = await scoreParts(scorer, items, { signal, onTruncated: (item) => cut.add(item) });
  const bad = total.find((value) => !isReward(value));
  if (bad !== undefined)
    throw new UserError(
      `The rewards (${scorer.name}) add up to ${bad} for a response: not a number to compute with. Mend the reward, or give it a smaller weight (--reward-weights).`,
    );
  for (const [i, rollout] of rollouts.entries()) {
    rollout.score = total[i] as number;
    rollout.parts = Object.fromEntries(Object.entries(parts).map(([name, values]) => [name, values[i] as number]));
    rollout.correct = isRight(items[i] as RewardItem);
    if (cut.has(items[i] as RewardItem)) rollout.truncated = true;
  }
}

/**
 * Sets `correct` of episodes that can succeed or fail. If an environment does not declare this, one reported success or
 * failure in the batch shows it, and its episodes without a report count as failed.
 */
export function judgeEpisodes(rollouts: readonly Rollout[]): void {
  const byEnvironment = Map.groupBy(rollouts, ({ episode }) => episode?.environment);
  for (const own of byEnvironment.values()) {
    const judged = own[0]?.episode?.judged ?? own.some(({ episode }) => episode?.success !== undefined);
    if (judged) for (const rollout of own) rollout.correct = rollout.episode?.success ?? false;
  }
}
