/** What one server may offer besides a plain model: adapters on its base, quantised models, reward models. */
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addLora, LanguageModel, loadModelFolder, saveModel } from '../models/index.ts';
import { loadRewardModel } from '../rewards/index.ts';
import { liveTensors } from '../tensor/index.ts';
import { Registry } from './registry.ts';
import { adapter, question, rewardModel, tiny } from './served.test-support.ts';
import { type RequestEntry, type RunningServer, serve } from './server.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-offers-'));
const at = (name: string) => join(folder, name);
let registry: Registry;
let server: RunningServer;
let client: OpenAI;
let before: number;

beforeAll(async () => {
  adapter(at('one'), 1);
  adapter(at('two'), 2);
  await rewardModel(at('judge'));
  before = liveTensors();
  registry = new Registry({ dtype: 'float32', maxTokens: 512, slots: 8 });
  await registry.add('base', tiny);
  registry.addAdapter('one', at('one'));
  registry.addAdapter('two', at('two'));
  await registry.addRewardModel('judge', at('judge'));
  server = await serve(registry, { port: 0 });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
afterAll(async () => {
  await server.drain();
  registry.dispose();
  expect(liveTensors()).toBe(before);
  rmSync(folder, { recursive: true });
});

const ask = async (model: string, seed: number) => {
  const made = await client.chat.completions.create({ model, messages: question, seed, max_tokens: 40 });
  return made.choices[0]?.message.content;
};

describe('a cache that is smaller than the context', () => {
  it('is the context: a request without max_tokens fits, and a longer one is told', async () => {
    using small = new Registry({ dtype: 'float32', maxCacheBytes: 2 ** 20 });
    expect((await small.add('small', tiny)).maxTokens).toBe(512);
    await using server = await serve(small, { port: 0 });
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const made = await client.chat.completions.create({ model: 'small', messages: question, seed: 1 });
    expect(made.usage?.total_tokens).toBeLessThanOrEqual(512);
    const longer = client.chat.completions.create({ model: 'small', messages: question, max_tokens: 512 });
    await expect(longer).rejects.toMatchObject({ status: 400, code: 'context_length_exceeded' });
  });
});

describe('adapters by name', () => {
  it('share a batch with their base; each text is that of its model alone', async () => {
    const models = ['base', 'one', 'two'];
    const sources = { base: tiny, one: at('one'), two: at('two') };
    const expected = new Map<string, string>();
    for (const [name, source] of Object.entries(sources)) {
      using model = await LanguageModel.open(source, { dtype: 'float32' });
      for (let seed = 0; seed < 3; seed++) {
        const { text } = await model.generate({ messages: question, seed, maxNewTokens: 40 });
        expected.set(`${name} ${seed}`, text);
      }
    }
    const cases = [0, 1, 2].flatMap((seed) => models.map((model) => [model, seed] as const));
    const texts = await Promise.all(cases.map(([model, seed]) => ask(model, seed)));
    for (const [i, [model, seed]] of cases.entries()) expect(texts[i]).toBe(expected.get(`${model} ${seed}`));
    expect(new Set(expected.values()).size).toBeGreaterThan(3); // the adapters do change the texts
  });

  it('are listed, and a name that is taken is refused', async () => {
    const { data } = await client.models.list();
    expect(data.map(({ id }) => id)).toEqual(['base', 'one', 'two', 'judge']);
    expect(() => registry.addAdapter('one', at('one'))).toThrow(/Two models are named "one"/);
  });
});

it('takes no more tokens than the model has positions, whatever is asked for', async () => {
  using long = new Registry({ dtype: 'float32', maxTokens: 5000, slots: 1 });
  expect((await long.add('tiny', tiny)).maxTokens).toBe(1024);
});

describe('a quantised model', () => {
  it.each(['int8', 'int4'] as const)('%s: the text of the same model offline', async (quantType) => {
    using small = new Registry({ dtype: 'float32', maxTokens: 256, slots: 2, quantType });
    await small.add('small', tiny);
    await using running = await serve(small, { port: 0 });
    const own = new OpenAI({ baseURL: `${running.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const made = await own.chat.completions.create({ model: 'small', messages: question, seed: 2, max_tokens: 32 });
    using model = await LanguageModel.open(tiny, { dtype: 'float32', quantType });
    const { text } = await model.generate({ messages: question, seed: 2, maxNewTokens: 32 });
    expect(made.choices[0]?.message.content).toBe(text);
  });
});

describe('/v1/score', () => {
  const post = async (body: unknown) => {
    const answer = await fetch(`${server.url}/v1/score`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  const items = ['uba', 'abu, I think', ''].map((response) => ({ messages: question, response }));

  it('gives the scores of the reward model, in order', async () => {
    using scorer = await loadRewardModel(at('judge'), { dtype: 'float32' });
    const scores = await scorer.score(items.map(({ messages, response }) => ({ prompt: messages, response })));
    const { status, body } = await post({ model: 'judge', items });
    expect(status).toBe(200);
    expect(body).toMatchObject({ object: 'list', model: 'judge' });
    const data = body.data as { index: number; score: number }[];
    expect(data.map(({ index }) => index)).toEqual([0, 1, 2]);
    for (const [i, { score }] of data.entries()) expect(score).toBeCloseTo(scores[i] as number, 5);
    expect(new Set(scores).size).toBe(3);
  });

  it('others are answered while it scores, and the scores are those of one pass', async () => {
    const long = Array.from({ length: 60 }, (_, i) => ({
      messages: question,
      response: `${i} ${'abu '.repeat(60 + 4 * (i % 12))}`,
    }));
    let running = true;
    const started = performance.now();
    const scored = post({ items: long }).finally(() => {
      running = false;
    });
    let longestWait = 0;
    while (running) {
      const asked = performance.now();
      expect((await fetch(`${server.url}/health`)).status).toBe(200);
      longestWait = Math.max(longestWait, performance.now() - asked);
    }
    expect(longestWait).toBeLessThan((performance.now() - started) / 2);
    using scorer = await loadRewardModel(at('judge'), { dtype: 'float32' });
    const scores = await scorer.score(long.map(({ messages, response }) => ({ prompt: messages, response })));
    expect(((await scored).body.data as { score: number }[]).map(({ score }) => score)).toEqual(scores);
  });

  it('reads a long prompt once for several responses', async () => {
    const scorer = registry.findReward('judge');
    const passes = vi.spyOn(scorer.model.decoder, 'forwardAt');
    const prompt = [{ role: 'user' as const, content: 'abu '.repeat(100) }];
    const long = Array.from({ length: 8 }, (_, i) => ({ prompt, response: `It is ${i}.` }));
    const scores = await scorer.score(long, { tokenBudget: 64 });
    expect(passes.mock.calls.length).toBeLessThan(4);
    passes.mockRestore();
    expect(scores).toEqual(await scorer.score(long));
  });

  it('stops when the client goes away', async () => {
    const entries: RequestEntry[] = [];
    await using watched = await serve(registry, { port: 0, onRequest: (entry) => void entries.push(entry) });
    const leaving = new AbortController();
    const asked = fetch(`${watched.url}/v1/score`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({
        items: Array.from({ length: 400 }, () => ({ prompt: 'x', response: 'abu '.repeat(100) })),
      }),
      signal: leaving.signal,
    });
    for (let i = 0; i < 3; i++) await fetch(`${watched.url}/health`);
    leaving.abort();
    await expect(asked).rejects.toThrow();
    await vi.waitFor(() => expect(entries.find(({ route }) => route === '/v1/score')?.status).toBe(499), 20_000);
  });

  it('marks scores of texts that it could not read whole', async () => {
    const { body } = await post({ items: [items[0], { messages: question, response: 'abu '.repeat(600) }] });
    expect(body.data).toEqual([
      { object: 'score', index: 0, score: expect.any(Number) },
      { object: 'score', index: 1, score: expect.any(Number), truncated: true },
    ]);
  });

  it('says what is wrong with a request', async () => {
    expect(await post({ model: 'base', items })).toMatchObject({ status: 404 });
    expect(await post({ items: [] })).toMatchObject({ status: 400 });
    const both = await post({ items: [{ prompt: 'x', messages: question, response: 'y' }] });
    expect(both.status).toBe(400);
    expect(JSON.stringify(both.body)).toContain('either a prompt or messages');
  });

  it('a reward model does not chat', async () => {
    await expect(ask('judge', 0)).rejects.toThrow(/"judge" is a reward model: .*score/);
    using other = new Registry();
    await expect(other.add('judge', at('judge'))).rejects.toThrow(/--reward-model/);
    {
      using trained = loadModelFolder(tiny, { dtype: 'float32' });
      addLora(trained, { r: 2 });
      trained.addHead('reward', 1);
      saveModel(trained, at('judge-adapter'));
    }
    cpSync(join(tiny, 'tokenizer.json'), at('judge-adapter/tokenizer.json'));
    await expect(other.add('judge', at('judge-adapter'))).rejects.toThrow(/is a reward model: .*--reward-model/);
    await other.add('tiny', tiny);
    expect(() => other.addAdapter('judge', at('judge-adapter'))).toThrow(/is a reward model: .*--reward-model/);
  });
});

describe('characters of several tokens', () => {
  // Each of these characters is two to four bytes, and models/tiny has a token for hardly any of them.
  const words = ['größer', '日本語', '😀👍🏽', 'naïve Ω'];
  const format = (word: string) => ({
    type: 'json_schema' as const,
    json_schema: { name: 'x', schema: { enum: [word] } },
  });

  it.each(words)('%s streams whole', async (word) => {
    const pieces: string[] = [];
    let tokens = 0;
    for await (const chunk of await client.chat.completions.create({
      ...{ model: 'base', messages: question, stream: true, max_tokens: 60, response_format: format(word) },
      stream_options: { include_usage: true },
    })) {
      pieces.push(chunk.choices[0]?.delta.content ?? '');
      tokens = chunk.usage?.completion_tokens ?? tokens;
    }
    expect(JSON.parse(pieces.join(''))).toBe(word);
    expect(pieces.join('')).not.toContain('\ufffd');
    expect(tokens).toBeGreaterThan([...word].length); // some character took several tokens
    const byBytes = await client.chat.completions.create({
      ...{ model: 'base', messages: question, max_tokens: 60, response_format: format(word), logprobs: true },
    });
    const bytes = byBytes.choices[0]?.logprobs?.content?.flatMap((each) => each.bytes ?? []) ?? [];
    expect(Buffer.from(bytes).toString()).toContain(word);
  });
});
