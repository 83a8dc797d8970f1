/**
 * Episodes token by token: answers keep their sampled ids, observations stand between them, and each episode ends for a
 * known reason.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { evenTurns, isEven, turnsModel } from '../../../tests/support/turns.ts';
import {
  defineEnvironment,
  type Environment,
  type EnvironmentRecipe,
  openEnvironments,
} from '../../environments/index.ts';
import { environmentText } from '../../environments/recipe.ts';
import { type GenerationRequest, loadModel, type Model, type SampledResponse, Sampler } from '../../models/index.ts';
import { ChatFormat, NextTurn, Tokenizer } from '../../text/index.ts';
import { scoreLogprobs } from '../batches.ts';
import { EnvironmentPrompts, environmentEvalPrompts } from '../environment-prompts.ts';
import { PromptWriter } from '../prompts.ts';
import { type Rollout, type RolloutSampler, rolloutSeeds } from '../rollout.ts';
import { judgeEpisodes } from '../scoring.ts';
import { EpisodePlayer, type EpisodePlayerOptions } from './player.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-episodes-'));
let tokenizer: Tokenizer;
let model: Model;
beforeAll(async () => {
  const path = await turnsModel(join(folder, 'model'));
  tokenizer = await Tokenizer.load(path);
  model = await loadModel(path, { dtype: 'float32' });
  model.train(false);
});
afterAll(() => {
  model.dispose();
  rmSync(folder, { recursive: true });
});

/** A sampler that says these texts, whatever the prompt. Those in `cut` end as if at the token limit. */
function saying(texts: readonly string[], cut: readonly string[] = []) {
  const requests: GenerationRequest[] = [];
  const sampler: RolloutSampler = {
    dispose() {},
    generate: async (asked) =>
      asked.map((request) => {
        requests.push(request);
        const text = texts[Math.min(requests.length, texts.length) - 1] as string;
        const isCut = cut.includes(text);
        const ids = [...tokenizer.encode(text), ...(isCut ? [] : [tokenizer.eosId as number])];
        const response: SampledResponse = {
          ids,
          logprobs: Float32Array.from(ids, (_, i) => -i - 1),
          finish: isCut ? 'length' : 'stop',
        };
        return Array.from({ length: request.samples ?? 1 }, () => response);
      }),
  };
  return { sampler, requests };
}

interface Asked extends Partial<EpisodePlayerOptions> {
  maxNewTokens?: number;
  groupSize?: number;
  count?: number;
  signal?: AbortSignal;
}

async function play(environments: EnvironmentRecipe, sampler: RolloutSampler, asked: Asked = {}): Promise<Rollout[]> {
  const { maxNewTokens = 400, groupSize = 1, count = 1, signal, ...options } = asked;
  using opened = await openEnvironments(environmentText(environments), { timeLimitMs: 500 });
  const prompts = await (await EnvironmentPrompts.open(opened, new PromptWriter(tokenizer), { seed: 1 })).take(count);
  const player = new EpisodePlayer(tokenizer, { maxTurns: 6, onError: 'stop', ...options });
  const sampling = { groupSize, maxNewTokens, temperature: 1, seeds: rolloutSeeds(3, 'x'), signal };
  return player.play(sampler, prompts, sampling);
}

let made = 0;

/** Ends after three answers unless overridden. */
const echo = (more: Partial<Environment> = {}, log: string[] = []) =>
  defineEnvironment({
    name: `echo_${++made}`, // the name seeds a problem's random numbers
    start: ({ random }) => ({
      messages: `red ${random.int(0, 1e6)}`,
      step: (response, { turn }) => {
        log.push(`${turn} ${response}`);
        return { observation: `no ${response}`, reward: turn, done: turn === 3 };
      },
      end: () => void log.push('end'),
    }),
    ...more,
  });

describe('an episode', () => {
  it('is one sequence: the prompt, what was sampled, and what the template writes between', async () => {
    const log: string[] = [];
    const { sampler, requests } = saying(['yes', 'good 7', 'bad']);
    const [episode] = (await play(echo({}, log), sampler)) as [Rollout];
    const next = new NextTurn(tokenizer, new ChatFormat(tokenizer));
    const eos = tokenizer.eosId as number;
    const said = (text: string) => [...tokenizer.encode(text), eos];
    const told = (text: string) => next.ids(episode.prompt.messages, [{ role: 'user', content: `no ${text}` }], eos);
    const prompt = Array.from(episode.prompt.ids);
    const parts = [prompt, said('yes'), told('yes'), said('good 7'), told('good 7'), said('bad')];
    expect(Array.from(episode.ids)).toEqual(parts.flat());
    // Each turn's prompt is everything that came before.
    expect(requests.map(({ prompt: asked }) => Array.from(asked))).toEqual(
      [1, 3, 5].map((length) => parts.slice(0, length).flat()),
    );
    expect(new Set(requests.map(({ seed }) => seed)).size).toBe(3);
    expect(Array.from(episode.responseIds)).toEqual([1, 3, 5].flatMap((i) => parts[i] as number[]));
    const { spans = [] } = episode;
    const own = Array.from({ length: spans.length / 2 }, (_, i) => episode.ids.slice(spans[2 * i], spans[2 * i + 1]));
    expect(own.flatMap((ids) => Array.from(ids))).toEqual(Array.from(episode.responseIds));
    expect(Array.from(episode.lpOld)).toEqual([1, 3, 5].flatMap((i) => (parts[i] as number[]).map((_, t) => -t - 1)));
    expect(episode.response).toBe(
      'assistant: yes\nuser: no yes\nassistant: good 7\nuser: no good 7\nassistant: bad\nuser: no bad',
    );
    expect(episode).toMatchObject({ ended: true, score: 6, episode: { end: 'done' } });
    expect(episode.episode?.turns.map(({ tokens, reward }) => [tokens, reward])).toEqual(
      [1, 3, 5].map((at, i) => [parts[at]?.length, i + 1]),
    );
    // Its problem was started twice before, to read its first observation.
    expect(log).toEqual(['end', 'end', '1 yes', '2 good 7', '3 bad', 'end']);
  });

  it('ends with its turns, with its room, and where the policy is cut off, and says so', async () => {
    const log: string[] = [];
    const ended = async (asked: Asked, cut: string[] = []) => {
      log.length = 0;
      const [episode] = (await play(echo({}, log), saying(['yes', 'good 7', 'bad'], cut).sampler, asked)) as [Rollout];
      const { end, turns } = episode.episode ?? {};
      expect(log.at(-1)).toBe('end');
      // Nothing follows the policy's last token, because nothing would use it.
      expect(Array.from(episode.spans ?? []).at(-1)).toBe(episode.ids.length);
      return [end, turns?.length, episode.ended, episode.score];
    };
    expect(await ended({ maxTurns: 2 })).toEqual(['turns', 2, true, 3]);
    expect(await ended({ maxNewTokens: 20 })).toEqual(['length', 1, false, 1]);
    expect(await ended({}, ['good 7'])).toEqual(['length', 2, false, 3]);
    // An answer that was cut off may still solve the problem.
    expect(await ended({}, ['bad'])).toEqual(['done', 3, false, 6]);
  });

  it('ends for want of room at once where it is told a whole file, and keeps its beginning', async () => {
    const teller = defineEnvironment({
      name: 'file',
      start: ({ random }) => ({
        messages: `Read ${random.int(1, 1e6)}.`,
        step: () => ({ observation: 'a line '.repeat(3e6), reward: 1 }),
      }),
    });
    const { sampler, requests } = saying(['ok']);
    const [rollout] = await play(teller, sampler, { maxNewTokens: 100 });
    expect(rollout).toMatchObject({ score: 1, episode: { end: 'length' } });
    expect(requests).toHaveLength(1);
    expect(rollout?.episode?.turns[0]?.told[0]?.content).toMatch(/^a line [^…]+… \(20990000 more characters\)$/);
  }, 10_000);

  it('that fails stops the run, or keeps what it has earned', async () => {
    const failing = () =>
      echo({
        start: ({ random }) => ({
          messages: `red ${random.int(0, 1e6)}`,
          step: (_, { turn }) => {
            if (turn === 2) throw new Error('no answer today');
            return { observation: 'no', reward: 0.5 };
          },
        }),
      });
    await expect(play(failing(), saying(['yes']).sampler)).rejects.toThrow(/failed at turn 2.*no answer today/);
    const failures: string[] = [];
    const onFailure = (error: Error) => void failures.push(error.message);
    const [episode] = (await play(failing(), saying(['yes']).sampler, { onError: 'score', onFailure })) as [Rollout];
    expect(episode).toMatchObject({ score: 0.5, ended: true, episode: { end: 'error' } });
    expect(failures).toEqual([expect.stringContaining('no answer today')]);
    // Breaking the contract is a fault in the environment, not in an episode.
    const broken = echo({
      start: ({ random }) => ({ messages: `red ${random.int(0, 1e6)}`, step: () => 'well' as never }),
    });
    await expect(play(broken, saying(['yes']).sampler, { onError: 'score' })).rejects.toThrow(/gave "well"/);
    const slow = echo({
      start: ({ random }) => ({ messages: `red ${random.int(0, 1e6)}`, step: () => new Promise<never>(() => {}) }),
    });
    await expect(play(slow, saying(['yes']).sampler)).rejects.toThrow(/took longer than 0\.5 s/);
    const fickle = echo({ start: () => ({ messages: `red ${Math.random()}`, step: () => ({ done: true }) }) });
    await expect(play(fickle, saying(['yes']).sampler)).rejects.toThrow(/two different problems for seed/);
  });

  it('is given up when the run is stopped, and its environment is told', async () => {
    const log: string[] = [];
    const stop = new AbortController();
    const waiting = echo({
      start: ({ random }) => ({
        messages: `red ${random.int(0, 1e6)}`,
        step: () => {
          stop.abort(new Error('enough'));
          return new Promise<never>(() => {});
        },
        end: () => void log.push('end'),
      }),
    });
    await expect(play(waiting, saying(['yes']).sampler, { signal: stop.signal, count: 2 })).rejects.toThrow('enough');
    expect(log.filter((each) => each === 'end').length).toBeGreaterThanOrEqual(2);
  });
});

it('samples many at a time, with the log-probs of a whole forward pass and the tokens that each has alone', async () => {
  const asked = { groupSize: 3, count: 4, maxNewTokens: 160 };
  using sampler = new Sampler(model, { tokenizer, reusePrefixes: true });
  const both = [{ environment: evenTurns, difficulty: [1, 2] as const }];
  const episodes = await play(both, sampler, asked);
  expect(new Set(episodes.map(({ episode }) => episode?.turns.length)).size).toBeGreaterThan(1);
  expect(sampler.promptTokens.reused).toBeGreaterThan(sampler.promptTokens.computed / 4);
  const { logprobs } = scoreLogprobs(model, null, episodes, { temperature: 1, microBatchTokens: 400 });
  for (const [i, { lpOld, responseIds }] of episodes.entries()) {
    expect(logprobs[i]).toHaveLength(responseIds.length);
    for (const [t, lp] of lpOld.entries()) expect(Math.abs(lp - (logprobs[i]?.[t] as number))).toBeLessThan(1e-4);
  }
  // Few slots and no prefix reuse: the same tokens from other batches.
  using other = new Sampler(model, { tokenizer, slots: 2 });
  const again = await play(both, other, asked);
  expect(again.map(({ ids }) => Array.from(ids))).toEqual(episodes.map(({ ids }) => Array.from(ids)));
  // The environment saw exactly what was sampled.
  for (const { episode, parts, score } of episodes) {
    const even = episode?.turns.filter(({ response }) => isEven(response)).length;
    expect([parts.even, score]).toEqual([even, Number(even) + (parts.solved as number)]);
  }
});

it('says of every episode whether it was solved, as soon as an environment says so of one', () => {
  const of = (success?: boolean, judged?: boolean) =>
    ({ episode: { environment: 'x', success, ...(judged !== undefined && { judged }) } }) as Rollout;
  const judged = (rollouts: Rollout[]) => {
    judgeEpisodes(rollouts);
    return rollouts.map(({ correct }) => correct);
  };
  expect(judged([of(), of()])).toEqual([undefined, undefined]);
  expect(judged([of(), of(true)])).toEqual([false, true]);
  expect(judged([of(undefined, true), of(undefined, true)])).toEqual([false, false]);
  expect(judged([of(true, false)])).toEqual([undefined]);
});

it('never trains on held-out problems, and goes on where it was', async () => {
  using opened = await openEnvironments('guess:1-2', { timeLimitMs: 500 });
  const writer = new PromptWriter(tokenizer);
  const open = () => EnvironmentPrompts.open(opened, writer, { seed: 5, curriculum: { up: 0.8, down: 0.2 } });
  const held = await environmentEvalPrompts(opened, writer, { seed: 5, count: 30 });
  const keyOf = ({ problem }: (typeof held)[number]) => problem?.key;
  expect(new Set(held.map(keyOf)).size).toBe(30);
  const prompts = await open();
  const first = await prompts.take(40);
  expect(first.filter((prompt) => held.map(keyOf).includes(keyOf(prompt)))).toEqual([]);
  expect(new Set(first.map(({ problem }) => problem?.difficulty))).toEqual(new Set([1]));
  for (let i = 0; i < 3; i++)
    prompts.learn(
      first,
      first.map(() => 1),
    );
  expect(prompts.metrics()).toEqual({ level_guess: 2 });
  const again = await open();
  again.restore(JSON.parse(JSON.stringify(prompts.state())));
  expect(await again.take(5)).toEqual(await prompts.take(5));
  expect((await open()).fingerprint).toBe(prompts.fingerprint);
  using others = await openEnvironments('guess:1', { timeLimitMs: 500 });
  expect((await EnvironmentPrompts.open(others, writer, { seed: 5 })).fingerprint).not.toBe(prompts.fingerprint);
});

it('says that no held-out problem fits, not that there are no more of them', async () => {
  using opened = await openEnvironments('guess', { timeLimitMs: 500 });
  const writer = new PromptWriter(tokenizer, { maxLength: 3 });
  await expect(environmentEvalPrompts(opened, writer, { seed: 1, count: 4 })).rejects.toThrow(
    /no prompts to evaluate on: the first messages of all \d+ problems are longer than --prompt-max-length 3\./,
  );
});
