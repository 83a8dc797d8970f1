/** An episode of an environment as a rollout keeps it: who said what, and how it ended. */
import { meanOf } from '../algorithms/index.ts';
import type { Message } from '../text/index.ts';
import type { Rollout } from './rollout.ts';

/** An answer of the policy and what the environment made of it. */
export interface EpisodeTurn {
  response: string;
  /** Tokens of the response. */
  tokens: number;
  /** What the environment said then, also after the last turn, where the policy no longer reads it. */
  told: readonly Message[];
  reward: number;
}

/**
 * Why an episode ended. `done`: the environment said so; `turns`: --max-turns; `length`: --max-new-tokens; `error`: the
 * environment failed, and --on-reward-error score goes on.
 */
export type EpisodeEnd = 'done' | 'turns' | 'length' | 'error';

export interface EpisodeRecord {
  environment: string;
  difficulty: number;
  turns: EpisodeTurn[];
  end: EpisodeEnd;
  /** As the environment said; undefined if it never did. */
  success?: boolean;
  /** Whether its episodes succeed or fail; not known of every environment. */
  judged?: boolean;
}

/** Everything that was said after the prompt, as one text. */
export function transcript({ turns }: Pick<EpisodeRecord, 'turns'>): string {
  const said = turns.flatMap(({ response, told }) => [{ role: 'assistant', content: response }, ...told]);
  return said.length === 1
    ? (said[0]?.content ?? '')
    : said.map(({ role, content }) => `${role}: ${content}`).join('\n');
}

/**
 * Sets `correct` of episodes that succeed or fail. Where an environment does not say whether its own do, one success or failure in the
 * batch tells: the others that said nothing have failed.
 */
export function judgeEpisodes(rollouts: readonly Rollout[]): void {
  const byEnvironment = Map.groupBy(rollouts, ({ episode }) => episode?.environment);
  for (const own of byEnvironment.values()) {
    const judged = own[0]?.episode?.judged ?? own.some(({ episode }) => episode?.success !== undefined);
    if (judged) for (const rollout of own) rollout.correct = rollout.episode?.success ?? false;
  }
}

/** Turns of an episode, the share that the environment ended, and the share that failed with it. */
export function episodeMetrics(rollouts: readonly Rollout[]): Record<string, number> {
  const episodes = rollouts.flatMap(({ episode }) => (episode === undefined ? [] : [episode]));
  if (episodes.length === 0) return {};
  const share = (end: EpisodeEnd) => episodes.filter((episode) => episode.end === end).length / episodes.length;
  return {
    turns: meanOf(episodes.map(({ turns }) => turns.length)),
    episodes_done: share('done'),
    ...(share('error') > 0 && { episodes_failed: share('error') }),
  };
}
