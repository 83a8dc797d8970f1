/** Fields of requests: none is ignored. Unsupported ones are refused by name, at any depth. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Registry } from './registry.ts';
import { question, rewardModel, withTools } from './served.test-support.ts';
import { type RunningServer, serve } from './server.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-fields-'));
let registry: Registry;
let server: RunningServer;
let client: OpenAI;

beforeAll(async () => {
  registry = new Registry({ dtype: 'float32', maxTokens: 512, slots: 4 });
  await registry.add('tiny', withTools(join(folder, 'tiny')));
  await registry.addRewardModel('judge', await rewardModel(join(folder, 'judge')));
  server = await serve(registry, { port: 0 });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
afterAll(async () => {
  await server.drain();
  registry.dispose();
  rmSync(folder, { recursive: true });
});

async function post(path: string, body: unknown) {
  const answer = await fetch(`${server.url}${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  const read = (await answer.json()) as { error?: { message: string; param: string } };
  return { status: answer.status, message: read.error?.message ?? '', param: read.error?.param };
}
const chat = (more: object) => post('/v1/chat/completions', { messages: question, max_tokens: 2, ...more });
const f = { type: 'function', function: { name: 'f' } };

describe('fields that are not offered', () => {
  it.each<[object, string, RegExp]>([
    [{ messages: [{ role: 'user', contnet: 'hello' }] }, 'messages.0.contnet', /Did you mean "content"/],
    [{ messages: [{ role: 'user' }] }, 'messages', /messages\.0\.content: is required/],
    [{ messages: [{ role: 'user', content: null }] }, 'messages', /messages\.0\.content: is required/],
    [{ messages: [{ role: 'assistant' }] }, 'messages', /messages\.0\.content: is required/],
    [
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
      'messages',
      /^messages\.0\.content: expected text, or a list of parts of type "text": models here read nothing else\.$/,
    ],
    [{ modalities: ['text', 'audio'] }, 'modalities', /not offered/],
    [{ logit_bias: 5 }, 'logit_bias', /not offered/],
    [{ logit_bias: { 5: 1 } }, 'logit_bias', /not offered/],
    [{ temperature: 3, top_p: 'x' }, 'temperature', /got 3; top_p: /],
    [
      { messages: [{ role: 'user', content: [{ type: 'text', text: 'x', txet: 1 }] }] },
      'messages.0.content.0.txet',
      /not offered/,
    ],
    [
      { response_format: { type: 'json_schema', json_schema: { shcema: {} } } },
      'response_format.json_schema.shcema',
      /Did you mean "schema"/,
    ],
    [{ response_format: { type: 'json_object', schema: {} } }, 'response_format.schema', /not offered/],
    [{ stream: true, stream_options: { include_usge: true } }, 'stream_options.include_usge', /include_usage/],
    [{ tools: [{ ...f, strct: true }] }, 'tools.0.strct', /Did you mean "strict"/],
    [{ tools: [f], tool_choice: { ...f, mode: 'x' } }, 'tool_choice.mode', /not offered/],
    [{ tool_choice: 'required' }, 'tool_choice', /no tools to choose from/],
    [{ tool_choice: f }, 'tool_choice', /no tools to choose from/],
    [{ tool_choice: 'auto', tools: [] }, 'tool_choice', /no tools to choose from/],
    [{ top_logprobs: 2 }, 'top_logprobs', /needs logprobs: true/],
    [{ top_logprobs: 2, logprobs: false }, 'top_logprobs', /needs logprobs: true/],
  ])('%j', async (more, param, told) => {
    expect(await chat(more)).toMatchObject({ status: 400, param, message: expect.stringMatching(told) });
  });

  it('in what is scored', async () => {
    const score = (item: object) => post('/v1/score', { items: [{ prompt: 'x', response: 'y', ...item }] });
    expect(await score({ respnse: 'z' })).toMatchObject({ status: 400, param: 'items.0.respnse' });
    expect(await score({})).toMatchObject({ status: 200 });
  });

  it('those that change nothing are taken', async () => {
    expect(await chat({ modalities: ['text'], functions: [], presence_penalty: 0 })).toMatchObject({ status: 200 });
  });

  it('messages are taken back as they were given, nulls and calls included', async () => {
    const call = { ...f, function: { name: 'f', arguments: '{}' }, id: 'call_1', index: 0 };
    const given = { role: 'assistant', content: 'Yes', refusal: null, annotations: null, tool_calls: null };
    const called = { role: 'assistant', content: null, refusal: null, tool_calls: [call] };
    const hint = { type: 'text', text: '1', prompt_cache_breakpoint: { mode: 'explicit' }, cache_control: null };
    const result = { role: 'tool', content: [hint], tool_call_id: 'call_1' };
    expect(await chat({ messages: [...question, given, ...question, called, result], tools: [f] })).toMatchObject({
      status: 200,
    });
  });
});

describe('log-probs of completions', () => {
  it('come in the events of a stream, too', async () => {
    const asked = { model: 'tiny', prompt: ['What is', 'Sort'], n: 2, max_tokens: 9, seed: 3, logprobs: 2 };
    const whole = await client.completions.create(asked);
    type Logprobs = NonNullable<OpenAI.CompletionChoice['logprobs']>;
    const streamed = whole.choices.map((): Required<Logprobs> => {
      return { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
    });
    for await (const { choices } of await client.completions.create({ ...asked, stream: true })) {
      for (const { index, logprobs } of choices) {
        const told = streamed[index] as Record<keyof Logprobs, unknown[]>;
        for (const name of Object.keys(told) as (keyof Logprobs)[]) told[name].push(...(logprobs?.[name] ?? []));
      }
    }
    for (const [i, { logprobs }] of whole.choices.entries()) {
      expect(streamed[i]?.tokens).toEqual(logprobs?.tokens);
      expect(streamed[i]?.text_offset).toEqual(logprobs?.text_offset);
      expect(streamed[i]?.top_logprobs.map(Object.keys)).toEqual(logprobs?.top_logprobs?.map(Object.keys));
      expect(streamed[i]?.token_logprobs).toHaveLength(logprobs?.tokens?.length ?? -1);
      for (const [k, value] of (streamed[i]?.token_logprobs ?? []).entries())
        expect(value).toBeCloseTo(logprobs?.token_logprobs?.[k] ?? Number.NaN, 5);
    }
  });
});

describe('numbers', () => {
  it('a repetition penalty has bounds, within which log-probs are numbers', async () => {
    for (const wrong of [1e300, 1e-300, 0, 101])
      expect(await chat({ repetition_penalty: wrong })).toMatchObject({ status: 400, param: 'repetition_penalty' });
    for (const repetition_penalty of [0.01, 100]) {
      const made = await client.chat.completions.create({
        ...{ model: 'tiny', messages: question, max_tokens: 8, logprobs: true },
        ...({ repetition_penalty } as object),
      });
      const told = made.choices[0]?.logprobs?.content ?? [];
      expect(told.length).toBeGreaterThan(0);
      expect(told.every(({ logprob }) => Number.isFinite(logprob))).toBe(true);
    }
  });

  it('samples of the largest seed have seeds of their own, which go on from the smallest', async () => {
    const asked = { model: 'tiny', messages: question, max_tokens: 24 };
    const { choices } = await client.chat.completions.create({ ...asked, n: 3, seed: Number.MAX_SAFE_INTEGER });
    const alone = await client.chat.completions.create({ ...asked, seed: Number.MIN_SAFE_INTEGER + 1 });
    expect(choices[2]?.message.content).toBe(alone.choices[0]?.message.content);
    expect(new Set(choices.map(({ message }) => message.content)).size).toBe(3);
  });
});

it('a reward model that is asked for text is named as one', async () => {
  const answer = await chat({ model: 'judge' });
  expect(answer).toMatchObject({ status: 400, param: 'model', message: expect.stringContaining('under /v1/score') });
});

it('a server without a model says so', async () => {
  using none = new Registry();
  await using empty = await serve(none, { port: 0 });
  const ask = async (path: string, body: object) => {
    const headers = { 'Content-Type': 'application/json' };
    const answer = await fetch(`${empty.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    return [answer.status, ((await answer.json()) as { error: { message: string } }).error.message];
  };
  const score = { items: [{ prompt: 'x', response: 'y' }] };
  expect(await ask('/v1/chat/completions', { messages: question })).toEqual([404, 'There is no model here.']);
  expect(await ask('/v1/score', score)).toEqual([404, 'There is no reward model here.']);
  expect(await ask('/v1/score', { ...score, model: 'x' })).toEqual([
    404,
    'The reward model "x" is not served here. There is no reward model here.',
  ]);
});
