/**
 * Plays many episodes at a time, turn by turn. The answers of a turn are sampled together, and each environment gets
 * its answer as soon as it is sampled. The next turn begins when all environments have replied, so batches never depend
 * on how long they take.
 *
 *     const player = new EpisodePlayer(tokenizer, { maxTurns: 8, onError: 'stop' });
 *     const rollouts = await player.play(sampler, prompts, { groupSize: 8, maxNewTokens: 256, temperature: 1, seeds });
 */
import type { GenerationRequest, SampledResponse } from '../../models/index.ts';
import { ChatFormat, type FormatOptions, NextTurn, type Tokenizer } from '../../text/index.ts';
import type { RolloutPlayer } from '../drawing.ts';
import type { PolicyPrompt } from '../prompts.ts';
import { type Rollout, type RolloutOptions, type RolloutSampler, samplingRule } from '../rollout.ts';
import { type EpisodeRules, PlayedEpisode } from './episode.ts';

export interface EpisodePlayerOptions extends FormatOptions, Pick<EpisodeRules, 'maxTurns' | 'onError' | 'onFailure'> {}

/** The options of a run's episodes, named as in configs. */
export interface EpisodesConfig {
  env?: string;
  maxTurns: number;
  onRewardError: 'stop' | 'score';
  promptFormat: FormatOptions['format'];
  templateVariables?: FormatOptions['templateVariables'];
}

/** The player of a config's environments. undefined if it has none. */
export function episodePlayer(
  { env, maxTurns, onRewardError: onError, promptFormat: format, templateVariables }: EpisodesConfig,
  tokenizer: Tokenizer,
  onFailure?: (error: Error) => void,
): EpisodePlayer | undefined {
  if (env === undefined) return undefined;
  return new EpisodePlayer(tokenizer, { maxTurns, onError, onFailure, format, templateVariables });
}

export class EpisodePlayer implements RolloutPlayer {
  readonly #tokenizer: Tokenizer;
  readonly #nextTurn: NextTurn;
  readonly #options: EpisodePlayerOptions;

  constructor(tokenizer: Tokenizer, options: EpisodePlayerOptions) {
    this.#tokenizer = tokenizer;
    this.#options = options;
    this.#nextTurn = new NextTurn(tokenizer, new ChatFormat(tokenizer, options));
    // Refuses, before sampling, a chat template that cannot continue after a response.
    if (options.maxTurns > 1)
      this.#nextTurn.ids([{ role: 'user', content: 'a' }], [{ role: 'user', content: 'b' }], tokenizer.eosIds[0] ?? -1);
  }

  async play(
    sampler: RolloutSampler,
    prompts: readonly PolicyPrompt[],
    options: RolloutOptions & { longestPrompt?: number },
  ): Promise<Rollout[]> {
    const { groupSize, maxNewTokens, seeds, signal, progress } = options;
    const { longestPrompt = Math.max(...prompts.map(({ ids }) => ids.length)) } = options;
    sampler.reserve?.({ responses: prompts.length * groupSize, length: longestPrompt + maxNewTokens });
    const stop = new AbortController();
    const both = signal === undefined ? stop.signal : AbortSignal.any([signal, stop.signal]);
    const rules = { ...this.#options, tokenizer: this.#tokenizer, nextTurn: this.#nextTurn, maxNewTokens };
    const episodes = prompts.flatMap((prompt, group) =>
      Array.from(
        { length: groupSize },
        (_, rolloutIndex) => new PlayedEpisode({ prompt, group, rolloutIndex, seed: seeds(group) }, rules, both),
      ),
    );
    const bar = progress?.start('playing', episodes.length, 'episodes');
    const rule = samplingRule(options, this.#tokenizer);
    /** The next turn of episodes with equal histories: the whole group at first, then each episode by itself. */
    const turnOf = async (group: readonly PlayedEpisode[], request: GenerationRequest) => {
      const [sampled] = await sampler.generate([{ ...request, samples: group.length }], { signal: both });
      both.throwIfAborted();
      const take = async (episode: PlayedEpisode, i: number) => {
        await episode.take(sampled?.[i] as SampledResponse, both);
        if (episode.isOver) bar?.advance(1);
      };
      await Promise.all(group.map(take));
    };
    try {
      // A group's prompt is read once.
      const groups = Map.groupBy(episodes, ({ group }) => group);
      await Promise.all(
        [...groups].map(([group, own]) =>
          turnOf(own, { ...(own[0] as PlayedEpisode).request(rule), seed: seeds(group) }),
        ),
      );
      for (;;) {
        const live = episodes.filter(({ isOver }) => !isOver);
        if (live.length === 0) break;
        await Promise.all(live.map((episode) => turnOf([episode], episode.request(rule))));
      }
      await Promise.all(episodes.map((episode) => episode.close({ quiet: false })));
      return episodes.map((episode) => episode.rollout());
    } catch (error) {
      stop.abort();
      await Promise.all(episodes.map((episode) => episode.close({ quiet: true })));
      throw error;
    } finally {
      bar?.done();
    }
  }
}
