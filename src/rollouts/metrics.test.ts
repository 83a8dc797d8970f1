import { expect, it } from 'vitest';
import { rolloutMetrics } from './metrics.ts';
import type { Rollout } from './rollout.ts';

const rollout = (group: number, reward: number, correct?: boolean) =>
  ({
    group,
    reward,
    correct,
    score: reward,
    parts: {},
    responseIds: [1],
    advantages: [0],
    ended: true,
  }) as unknown as Rollout;

it('tells groups that were all right from those that were all wrong', () => {
  const sampled = [
    ...[rollout(0, 1, true), rollout(0, 1, true)],
    ...[rollout(1, 0, false), rollout(1, 0, false)],
    ...[rollout(2, 0.5, true), rollout(2, 0.5, false)],
    ...[rollout(3, 0, false), rollout(3, 0.1, false)],
  ];
  expect(rolloutMetrics(sampled, sampled)).toMatchObject({
    zero_spread: 0.75,
    zero_spread_right: 0.25,
    zero_spread_wrong: 0.25,
  });
  const unjudged = [rollout(0, 1), rollout(0, 1)];
  expect(rolloutMetrics(unjudged, unjudged)).not.toHaveProperty('zero_spread_right');
});
