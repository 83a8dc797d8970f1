/** Metrics of a step's rollouts. */
import { meanOf, stdOf, zeroSpreadShare } from '../algorithms/index.ts';
import { type EpisodeEnd, packedNumbers, type Rollout } from './rollout.ts';

/**
 * `sampled`: all rollouts of the step. `trained`: those trained on, which differ only if uniform groups were dropped.
 */
export function rolloutMetrics(sampled: readonly Rollout[], trained: readonly Rollout[]): Record<string, number> {
  if (sampled.length === 0) return {};
  const of = (pick: (rollout: Rollout) => number) => sampled.map(pick);
  const lengths = of(({ responseIds }) => responseIds.length);
  const rewards = of(({ reward }) => reward);
  const groups = of(({ group }) => group);
  const judged = sampled.filter(({ correct }) => correct !== undefined);
  const partNames = [...new Set(sampled.flatMap(({ parts }) => Object.keys(parts)))];
  return {
    reward: meanOf(rewards),
    reward_std: stdOf(rewards),
    score: meanOf(of(({ score }) => score)),
    ...Object.fromEntries(
      partNames.map((name) => [`reward_${name.replaceAll('/', '_')}`, meanOf(of(({ parts }) => parts[name] ?? 0))]),
    ),
    ...(judged.length === 0 ? {} : { accuracy: meanOf(judged.map(({ correct }) => Number(correct))) }),
    advantage_std: stdOf(packedNumbers(trained, ({ advantages }) => advantages)),
    zero_spread: zeroSpreadShare(rewards, groups),
    ...(judged.length === 0 ? {} : zeroSpreadSplit(sampled)),
    ...(trained.length === sampled.length ? {} : { dropped_share: 1 - trained.length / sampled.length }),
    length_mean: meanOf(lengths),
    length_max: Math.max(...lengths),
    ended: meanOf(of(({ ended }) => Number(ended))),
    ...episodeMetrics(sampled),
    ...truncatedShare(sampled),
    ...cutMassOf(sampled),
  };
}

/**
 * The metrics of a policy that does not learn from rewards. The spread within groups is left out, because it says
 * nothing there, and without any reward so are the rewards.
 */
export function withoutRewards(
  metrics: Record<string, number>,
  { isNone = false }: { isNone?: boolean },
): Record<string, number> {
  const untold = isNone ? /^(sampled_)?(reward|score)(_|$)|^zero_spread/ : /^zero_spread/;
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !untold.test(name)));
}

/** The shares of uniform groups in which every response is right, and in which every response is wrong. */
function zeroSpreadSplit(sampled: readonly Rollout[]): Record<string, number> {
  const groups = [...Map.groupBy(sampled, ({ group }) => group).values()];
  const equal = groups.filter((group) => group.every(({ reward }) => reward === group[0]?.reward));
  const shareOf = (wanted: boolean) =>
    equal.filter((group) => group.every(({ correct }) => correct === wanted)).length / groups.length;
  return { zero_spread_right: shareOf(true), zero_spread_wrong: shareOf(false) };
}

/** The share of responses that the reward model could not read whole. Empty if there are none. */
export function truncatedShare(rollouts: readonly Rollout[]): Record<string, number> {
  const cut = rollouts.filter(({ truncated }) => truncated).length;
  return cut === 0 ? {} : { score_truncated: cut / rollouts.length };
}

/** Turns per episode, the share of episodes that ended by themselves, and the share that failed. */
export function episodeMetrics(rollouts: readonly Rollout[]): Record<string, number> {
  const episodes = rollouts.flatMap(({ episode }) => (episode === undefined ? [] : [episode]));
  if (episodes.length === 0) return {};
  const conversations = rollouts.flatMap(({ starts }) => starts?.length ?? []);
  const share = (end: EpisodeEnd) => episodes.filter((episode) => episode.end === end).length / episodes.length;
  return {
    turns: meanOf(episodes.map(({ turns }) => turns.length)),
    episodes_done: share('done'),
    ...(conversations.length > 0 && { conversations: meanOf(conversations) }),
    ...(share('error') > 0 && { episodes_failed: share('error') }),
  };
}

/** The mean probability mass cut off at a token, if sampling was truncated. */
function cutMassOf(sampled: readonly Rollout[]): Record<string, number> {
  const cut = packedNumbers(sampled, ({ cutMass }) => cutMass);
  return cut.length === 0 ? {} : { cut_mass: meanOf(cut) };
}

/** Names of the same metrics in other libraries. They are logged alongside ours. */
export const otherNames: Readonly<Record<string, string>> = {
  reward: 'reward_mean',
  kl: 'kl_div',
  length_mean: 'completion_length_avg',
  length_max: 'completion_length_max',
  ended: 'proper_ending_rate',
};

export function withOtherNames(metrics: Record<string, number>): Record<string, number> {
  const twins = Object.entries(otherNames).flatMap(([ours, other]) =>
    metrics[ours] === undefined ? [] : [[other, metrics[ours]]],
  );
  return { ...metrics, ...Object.fromEntries(twins) };
}
