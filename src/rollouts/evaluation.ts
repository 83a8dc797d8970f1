/**
 * Evaluates a policy on held-out prompts with greedy and sampled responses. Every evaluation uses the same prompts,
 * which are never trained on.
 */
import { meanOf, meanPassAtK } from '../algorithms/index.ts';
import { computeDealt } from '../dist/deal.ts';
import { joinWorld } from '../dist/world.ts';
import { checkSameVocabulary } from '../models/files/tokenizer.ts';
import type { Model } from '../models/index.ts';
import type { RewardScorer } from '../rewards/index.ts';
import type { Tokenizer } from '../text/index.ts';
import { byTokens, type ScoreOptions, scoreLogprobs } from './batches.ts';
import { type DrawOptions, drawRollouts } from './drawing.ts';
import { episodeMetrics, truncatedShare } from './metrics.ts';
import { type PolicyPrompt, taskOf } from './prompts.ts';
import type { Rollout, RolloutOptions, RolloutSampler } from './rollout.ts';

export interface EvaluationOptions extends Omit<RolloutOptions, 'groupSize'> {
  /** Number of sampled responses per prompt, besides the greedy one; 0 = none. */
  samples: number;
  /** See `DrawOptions`. */
  exact?: boolean;
  player?: DrawOptions['player'];
}

export interface HeldOutEvaluation {
  metrics: Record<string, number>;
  /** One per prompt. */
  greedy: Rollout[];
  sampled: Rollout[];
}

export async function evaluatePrompts(
  sampler: RolloutSampler,
  tokenizer: Tokenizer,
  scorer: RewardScorer,
  prompts: readonly PolicyPrompt[],
  options: EvaluationOptions,
): Promise<HeldOutEvaluation> {
  const world = await joinWorld();
  const draw = async (more: { groupSize: number; temperature: number }) =>
    (await drawRollouts(sampler, tokenizer, scorer, prompts, { ...options, ...more, world })).rollouts;
  const greedy = await draw({ groupSize: 1, temperature: 0 });
  const sampled =
    options.samples > 0 ? await draw({ groupSize: options.samples, temperature: options.temperature }) : [];
  return { greedy, sampled, metrics: evaluationMetrics(greedy, sampled) };
}

/**
 * KL(policy‖reference) by the k1 estimate on the policy's own responses: Σ_t log π − log πref. Micro-batches are dealt
 * over the ranks.
 */
export async function measureKl(
  policy: Model,
  reference: Model,
  rollouts: readonly Rollout[],
  options: ScoreOptions,
): Promise<{ perResponse: number; perToken: number }> {
  checkSameVocabulary(policy, reference);
  const measure = (part: readonly Rollout[]) => {
    const own = scoreLogprobs(policy, null, part, options).logprobs;
    const other = scoreLogprobs(reference, null, part, options).logprobs;
    return own.map((lps, i) => lps.reduce((sum, lp, t) => sum + lp - (other[i]?.[t] as number), 0));
  };
  const parts = byTokens(rollouts, options.microBatchTokens, policy.decoder);
  const sums = (await computeDealt(await joinWorld(), parts, tokensOf, measure)).flat();
  const total = sums.reduce((sum, kl) => sum + kl, 0);
  const tokens = rollouts.reduce((sum, { responseIds }) => sum + responseIds.length, 0);
  return { perResponse: total / rollouts.length, perToken: total / tokens };
}

const tokensOf = (rollouts: readonly Rollout[]) => rollouts.reduce((sum, { ids }) => sum + ids.length, 0);

function evaluationMetrics(greedy: readonly Rollout[], sampled: readonly Rollout[]): Record<string, number> {
  const of = (pick: (rollout: Rollout) => number) => meanOf(greedy.map(pick));
  const partNames = [...new Set(greedy.flatMap(({ parts }) => Object.keys(parts)))];
  return {
    reward: of(({ score }) => score),
    ...Object.fromEntries(
      partNames.map((name) => [`reward_${name.replaceAll('/', '_')}`, of(({ parts }) => parts[name] ?? 0)]),
    ),
    ...(isJudged(greedy) ? { accuracy: of(({ correct }) => Number(correct)) } : {}),
    length_mean: of(({ responseIds }) => responseIds.length),
    length_max: Math.max(...greedy.map(({ responseIds }) => responseIds.length)),
    ended: of(({ ended }) => Number(ended)),
    ...episodeMetrics(greedy),
    ...truncatedShare(greedy),
    ...(sampled.length === 0 ? {} : sampledMetrics(sampled)),
    ...byTask(greedy, 'accuracy'),
    ...byTask(sampled, 'pass_at_1'),
  };
}

/** Accuracy by task of a mixture, because the mean may hide that one task improves and another is forgotten. */
function byTask(rollouts: readonly Rollout[], name: string): Record<string, number> {
  const tasks = Map.groupBy(rollouts, ({ prompt }) => taskOf(prompt));
  if (tasks.size < 2 || !isJudged(rollouts)) return {};
  return Object.fromEntries(
    [...tasks].map(([task, own]) => [`${name}_${task}`, meanOf(own.map(({ correct }) => Number(correct)))]),
  );
}

const isJudged = (rollouts: readonly Rollout[]) => rollouts.every(({ correct }) => correct !== undefined);

function sampledMetrics(sampled: readonly Rollout[]): Record<string, number> {
  const metrics: Record<string, number> = { sampled_reward: meanOf(sampled.map(({ score }) => score)) };
  if (!isJudged(sampled)) return metrics;
  const groups = [...Map.groupBy(sampled, ({ group }) => group).values()];
  const right = groups.map((group) => group.map(({ correct }) => Boolean(correct)));
  const most = Math.min(...right.map((samples) => samples.length));
  for (let k = 1; k <= most; k *= 2) metrics[`pass_at_${k}`] = meanPassAtK(right, k);
  return metrics;
}
