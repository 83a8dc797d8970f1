/**
 * Plays the episodes of agents. Each makes its calls at its own pace, and a turn is sampled when every episode is
 * waiting for an answer or over. Batches therefore never depend on how long agents take.
 *
 *     const player = new AgentPlayer(tokenizer, { maxTurns: 8, onError: 'stop', timeLimitMs: 60_000, maxPromptTokens: 1024 });
 *     const rollouts = await player.play(sampler, prompts, { groupSize: 8, maxNewTokens: 256, temperature: 1, seeds });
 */
import type { SampledResponse } from '../../models/index.ts';
import type { FormatOptions, Tokenizer } from '../../text/index.ts';
import type { RolloutPlayer } from '../drawing.ts';
import type { PolicyPrompt } from '../prompts.ts';
import { type Rollout, type RolloutOptions, type RolloutSampler, samplingRule } from '../rollout.ts';
import { CallWriter } from './conversation.ts';
import { CallEndpoint } from './endpoint.ts';
import { AgentEpisode, type AgentRules } from './episode.ts';

export interface AgentPlayerOptions
  extends FormatOptions,
    Pick<AgentRules, 'maxTurns' | 'maxPromptTokens' | 'timeLimitMs' | 'onError' | 'onFailure'> {}

export class AgentPlayer implements RolloutPlayer {
  readonly #tokenizer: Tokenizer;
  readonly #options: AgentPlayerOptions;
  readonly #writer: CallWriter;

  constructor(tokenizer: Tokenizer, options: AgentPlayerOptions) {
    this.#tokenizer = tokenizer;
    this.#options = options;
    this.#writer = new CallWriter(tokenizer, options);
  }

  async play(sampler: RolloutSampler, prompts: readonly PolicyPrompt[], options: RolloutOptions): Promise<Rollout[]> {
    const { groupSize, maxNewTokens, seeds, signal, progress } = options;
    const { maxPromptTokens } = this.#options;
    sampler.reserve?.({ responses: prompts.length * groupSize, length: maxPromptTokens + maxNewTokens });
    const stop = new AbortController();
    const both = signal === undefined ? stop.signal : AbortSignal.any([signal, stop.signal]);
    const changes = new Changes();
    const rules: AgentRules = {
      ...{ ...this.#options, tokenizer: this.#tokenizer, writer: this.#writer, maxNewTokens },
      onChange: () => changes.tell(),
    };
    const rule = samplingRule(options, this.#tokenizer);
    const episodes = prompts.flatMap((prompt, group) =>
      Array.from(
        { length: groupSize },
        (_, rolloutIndex) => new AgentEpisode({ prompt, group, rolloutIndex, seed: seeds(group) }, rules, rule),
      ),
    );
    const endpoint = await CallEndpoint.open();
    const bar = progress?.start('playing', episodes.length, 'episodes');
    const failed: unknown[] = [];
    const runs = episodes.map((episode) =>
      episode
        .run({ baseURL: endpoint.add(episode.call), apiKey: endpoint.apiKey }, both)
        .then(() => bar?.advance(1))
        .catch((error: unknown) => {
          failed.push(error);
          stop.abort();
        })
        .finally(() => changes.tell()),
    );
    try {
      for (;;) {
        await changes.until(() => failed.length > 0 || episodes.every((each) => each.isOver || each.isWaiting));
        if (failed.length > 0) throw failed[0];
        const turn = episodes.flatMap((each) => (each.isOver ? [] : each.take()));
        if (turn.length === 0) break;
        await Promise.all(
          turn.map(async ({ request, answer }) => {
            const [sampled] = await sampler.generate([request], { signal: both });
            both.throwIfAborted();
            answer(sampled?.[0] as SampledResponse);
          }),
        );
      }
      await Promise.all(runs);
      if (failed.length > 0) throw failed[0];
      return episodes.map((episode) => episode.rollout());
    } catch (error) {
      signal?.throwIfAborted();
      throw failed[0] ?? error;
    } finally {
      stop.abort();
      await Promise.all(runs);
      await endpoint.close();
      bar?.done();
    }
  }
}

/** Wakes a waiter, which checks its condition, after each change. */
class Changes {
  #next = Promise.withResolvers<void>();

  tell(): void {
    this.#next.resolve();
    this.#next = Promise.withResolvers<void>();
  }

  async until(isTrue: () => boolean): Promise<void> {
    while (!isTrue()) await this.#next.promise;
  }
}
