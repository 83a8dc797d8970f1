/** Rows of preference pairs, for `attune train preference`. */
import { meanOf } from '../../algorithms/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { scoreRollouts } from '../../rollouts/scoring.ts';
import type { Message } from '../../text/index.ts';
import type { BuildPreferencesConfig } from './config.ts';
import { asWritten, type RowBatch, type RowContext, type RowMaker } from './rows.ts';

/** One row of the file, with the scores as margins. */
export interface BuiltPair {
  prompt: string | readonly Message[];
  chosen: string;
  rejected: string;
  score_chosen: number;
  score_rejected: number;
}

export interface PairsSummary {
  kind: 'pairs';
  pairs: number;
  /** Number of prompts without a pair, because all their responses have the same score. */
  withoutPairs: number;
  meanScore: number;
  meanChosen: number;
  meanRejected: number;
  /** Number of responses too long for the reward model, which scored only their last tokens. */
  truncated: number;
}

export function pairRows({ config }: RowContext, scorer: RewardScorer): RowMaker<PairsSummary> {
  const { samples } = config;
  const scores: number[] = [];
  const made: BuiltPair[] = [];
  let withoutPairs = 0;
  let truncated = 0;
  return {
    async rows({ prompts, rollouts, signal }: RowBatch) {
      await scoreRollouts(scorer, rollouts, signal);
      scores.push(...rollouts.map(({ score }) => score));
      truncated += rollouts.filter((rollout) => rollout.truncated).length;
      return prompts.map(({ messages }, place) => {
        const responses = rollouts
          .slice(place * samples, (place + 1) * samples)
          .map(({ response, score }) => ({ text: response, score }));
        const pairs = pairsOf(responses, config).map(([better, worse]) => ({
          prompt: asWritten(messages),
          chosen: better.text,
          rejected: worse.text,
          score_chosen: better.score,
          score_rejected: worse.score,
        }));
        if (pairs.length === 0) withoutPairs++;
        made.push(...pairs);
        return pairs;
      });
    },
    summary: () => ({
      kind: 'pairs',
      pairs: made.length,
      withoutPairs,
      meanScore: meanOf(scores),
      meanChosen: meanOf(made.map((pair) => pair.score_chosen)),
      meanRejected: meanOf(made.map((pair) => pair.score_rejected)),
      truncated,
    }),
  };
}

export interface ScoredResponse {
  text: string;
  score: number;
}

/** Pairs of different texts whose scores differ by more than the gap, the better one first. */
export function pairsOf<T extends ScoredResponse>(
  responses: readonly T[],
  { pairs = 'best-worst', minGap = 0 }: Pick<BuildPreferencesConfig, 'pairs' | 'minGap'>,
): [T, T][] {
  const ranked = [...new Map(responses.map((each) => [each.text, each])).values()].sort((a, b) => b.score - a.score);
  const all = ranked.flatMap((better, i) =>
    ranked
      .slice(i + 1)
      .filter((worse) => better.score - worse.score > minGap)
      .map((worse): [T, T] => [better, worse]),
  );
  if (pairs === 'all') return all;
  const best = all.filter(([better]) => better === ranked[0]).at(-1);
  return best === undefined ? [] : [best];
}
