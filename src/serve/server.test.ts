/** The server as its clients see it: OpenAI's client and the AI SDK unchanged, and clients that must not get in. */
import { Agent, request as plainRequest } from 'node:http';
import { join } from 'node:path';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, Output, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LanguageModel } from '../models/index.ts';
import { liveTensors } from '../tensor/index.ts';
import { Registry } from './registry.ts';
import { type RunningServer, serve } from './server.ts';

const tiny = join(import.meta.dirname, '../../models/tiny');
const messages = [{ role: 'user' as const, content: 'Spell "abu" backward. Answer with one word.' }];
let registry: Registry;
let server: RunningServer;
let client: OpenAI;
let before: number;

beforeAll(async () => {
  before = liveTensors();
  registry = new Registry({ dtype: 'float32', maxTokens: 512, maxQueue: 16, slots: 8 });
  await registry.add('tiny', tiny);
  server = await serve(registry, { port: 0 });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
afterAll(async () => {
  await server.drain();
  registry.dispose();
  expect(liveTensors()).toBe(before);
});

describe("OpenAI's client", () => {
  it('lists models', async () => {
    const { data } = await client.models.list();
    expect(data.map(({ id }) => id)).toEqual(['tiny']);
    expect(await client.models.retrieve('tiny')).toEqual(data[0]);
    await expect(client.models.retrieve('org/other')).rejects.toMatchObject({
      ...{ status: 404, code: 'model_not_found', message: expect.stringContaining('"org/other"') },
    });
  });

  it('chats: the text of the offline sampler, with usage', async () => {
    using model = await LanguageModel.open(tiny, { dtype: 'float32' });
    const offline = await model.generate({ messages, seed: 5, maxNewTokens: 48 });
    const made = await client.chat.completions.create({ model: 'tiny', messages, seed: 5, max_completion_tokens: 48 });
    expect(made.choices[0]?.message).toMatchObject({ role: 'assistant', content: offline.text });
    expect(made.choices[0]?.finish_reason).toBe(offline.finish);
    expect(made.usage).toEqual({
      prompt_tokens: offline.promptTokens,
      completion_tokens: offline.ids.length,
      total_tokens: offline.promptTokens + offline.ids.length,
    });
  });

  it('streams the same text, with usage at the end', async () => {
    const asked = { model: 'tiny', messages, seed: 5, max_completion_tokens: 48 };
    const whole = await client.chat.completions.create(asked);
    const stream = await client.chat.completions.create({
      ...asked,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    let usage: unknown;
    let finish: string | null | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    expect(text).toBe(whole.choices[0]?.message.content);
    expect(finish).toBe(whole.choices[0]?.finish_reason);
    expect(usage).toEqual(whole.usage);
  });

  it('gives several choices, each as if alone', async () => {
    const several = await client.chat.completions.create({ model: 'tiny', messages, n: 3, seed: 9, max_tokens: 32 });
    const alone = await client.chat.completions.create({ model: 'tiny', messages, seed: 11, max_tokens: 32 });
    expect(several.choices).toHaveLength(3);
    expect(several.choices[2]?.message.content).toBe(alone.choices[0]?.message.content);
  });

  it('tells log-probs, the likeliest tokens and their bytes', async () => {
    const made = await client.chat.completions.create({
      ...{ model: 'tiny', messages, temperature: 0, max_tokens: 8, logprobs: true, top_logprobs: 3 },
    });
    const content = made.choices[0]?.logprobs?.content ?? [];
    expect(content).toHaveLength(made.usage?.completion_tokens ?? -1);
    for (const { logprob, top_logprobs: top, bytes, token } of content) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(top).toHaveLength(3);
      expect(top[0]?.logprob).toBeGreaterThanOrEqual(top[1]?.logprob ?? 0);
      expect(top[0]?.token).toBe(token); // greedy
      expect(bytes?.length).toBeGreaterThan(0);
    }
  });

  it('cuts at stop texts that cross tokens, in streams too', async () => {
    const asked = { model: 'tiny', messages, temperature: 0, stop: ['nswer>u'], max_tokens: 64 };
    const whole = (await client.chat.completions.create(asked)).choices[0];
    expect(whole?.finish_reason).toBe('stop');
    expect(whole?.message.content?.endsWith('<a')).toBe(true);
    let text = '';
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true }))
      text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe(whole?.message.content);
  });

  it('keeps to a JSON schema, and to JSON', async () => {
    const schema = {
      type: 'object',
      properties: {
        name: { type: 'string', maxLength: 12 },
        ages: { type: 'array', items: { type: 'integer' }, maxItems: 3 },
      },
      required: ['name', 'ages'],
      additionalProperties: false,
    };
    for (let seed = 0; seed < 5; seed++) {
      const made = await client.chat.completions.create({
        ...{ model: 'tiny', messages, seed, max_tokens: 300 },
        response_format: { type: 'json_schema', json_schema: { name: 'person', schema, strict: true } },
        ...{ logprobs: true, top_logprobs: 4 },
      });
      // Tokens that the schema excludes are not among the likeliest: their log-prob, −∞, cannot be written in JSON.
      const told = (made.choices[0]?.logprobs?.content ?? []).flatMap(({ top_logprobs: top }) => top);
      expect(told.map(({ logprob }) => typeof logprob)).toEqual(told.map(() => 'number'));
      const person = JSON.parse(made.choices[0]?.message.content ?? '');
      expect(Object.keys(person)).toEqual(['name', 'ages']);
      expect([...person.name].length).toBeLessThanOrEqual(12);
      expect(person.ages.every(Number.isInteger)).toBe(true);
    }
    const faulty = {
      type: 'json_schema' as const,
      json_schema: { name: 'x', schema: { type: 'integer', minimum: 1 } },
    };
    await expect(client.chat.completions.create({ model: 'tiny', messages, response_format: faulty })).rejects.toThrow(
      /minimum/,
    );
  });

  it('completes text, several prompts at once', async () => {
    const made = await client.completions.create({
      model: 'tiny',
      prompt: ['What is', 'Sort these'],
      max_tokens: 6,
      temperature: 0,
    });
    expect(made.choices.map(({ index }) => index)).toEqual([0, 1]);
    let streamed = '';
    for await (const chunk of await client.completions.create({
      model: 'tiny',
      prompt: 'What is',
      max_tokens: 6,
      temperature: 0,
      stream: true,
    }))
      streamed += chunk.choices[0]?.text ?? '';
    expect(streamed).toBe(made.choices[0]?.text);
  });

  it('names the field that does not fit the context', async () => {
    const asked = { model: 'tiny', max_tokens: 4000 };
    const failures = [
      client.chat.completions.create({ ...asked, messages }),
      client.completions.create({ ...asked, prompt: 'one two' }),
    ].map((made) => made.catch((error: unknown) => error as InstanceType<typeof OpenAI.APIError>));
    expect(await Promise.all(failures)).toMatchObject([
      { status: 400, code: 'context_length_exceeded', param: 'messages' },
      { status: 400, code: 'context_length_exceeded', param: 'prompt' },
    ]);
  });

  it.each([
    [{ model: 'nope', messages }, 404, /served here/],
    [{ model: 'tiny', messages, max_tokens: 4000 }, 400, /512 tokens.*4000/],
    [{ model: 'tiny', messages, presence_penalty: 1 }, 400, /presence_penalty/],
    [{ model: 'tiny', messages, temprature: 1 }, 400, /temperature/],
    [{ model: 'tiny', messages, constructor: 1 }, 400, /"constructor" is not offered/],
    [JSON.parse('{ "model": "tiny", "messages": [], "__proto__": {} }'), 400, /"__proto__" is not offered/],
    [{ model: 'tiny', messages: [] }, 400, /messages/],
    [{ model: 'tiny', messages, temperature: -1 }, 400, /temperature/],
    [{ model: 'tiny', messages, tools: [{ type: 'function', function: { name: 'f' } }] }, 400, /knows no tools/],
  ])('refuses %j', async (body, status, told) => {
    const failed = await client.chat.completions.create(body as never).then(
      () => undefined,
      (error: unknown) => error as InstanceType<typeof OpenAI.APIError>,
    );
    expect(failed?.status).toBe(status);
    expect(failed?.message).toMatch(told);
  });

  it('says when it is full, and when to come again', async () => {
    // The queue holds 16 responses; of the first 16, eight still wait for a slot when the others arrive.
    const ask = (n: number) =>
      client.chat.completions.create({ model: 'tiny', messages, n, max_tokens: 48, temperature: 1.5 }).then(
        () => undefined,
        (error: unknown) => error as InstanceType<typeof OpenAI.APIError>,
      );
    const [, failed] = await Promise.all([ask(16), ask(16)]);
    expect(failed?.status).toBe(429);
    expect(failed?.headers?.get('retry-after')).toBe('2');
    expect(await ask(17)).toMatchObject({ status: 400, message: expect.stringContaining('17 responses at once') });
    const after = await client.chat.completions.create({ model: 'tiny', messages, n: 4, max_tokens: 4 });
    expect(after.choices).toHaveLength(4);
  });

  it('frees the slot of a client that goes away', async () => {
    const stream = await client.chat.completions.create({
      model: 'tiny',
      messages,
      n: 8,
      max_tokens: 400,
      temperature: 2,
      stream: true,
    });
    for await (const _ of stream) break;
    const after = await client.chat.completions.create({ model: 'tiny', messages, max_tokens: 4, temperature: 0 });
    expect(after.choices).toHaveLength(1);
  });
});

describe('a connection', () => {
  /**
   * One request of an agent that keeps its connection; returns its local port and the keep-alive time that the server
   * announces.
   */
  const asked = (agent: Agent) =>
    new Promise<{ port: number | undefined; keepAlive: string }>((resolve, reject) => {
      const sent = plainRequest(`${server.url}/health`, { agent }, (response) => {
        const { localPort: port } = response.socket;
        response.resume().on('end', () => resolve({ port, keepAlive: String(response.headers['keep-alive']) }));
      });
      sent.on('error', reject);
      sent.end();
    });

  it('stays open for longer than clients keep theirs, and is used again', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const first = await asked(agent);
    expect(Number(/timeout=(\d+)/.exec(first.keepAlive)?.[1])).toBeGreaterThanOrEqual(60);
    expect((await asked(agent)).port).toBe(first.port);
    agent.destroy();
  });
});

describe('the AI SDK', () => {
  const provider = () =>
    createOpenAICompatible({ name: 'attune', baseURL: `${server.url}/v1`, supportsStructuredOutputs: true });

  it('generates and streams text', async () => {
    const prompt = messages[0]?.content as string;
    const { text, usage } = await generateText({
      model: provider()('tiny'),
      prompt,
      temperature: 0,
      maxOutputTokens: 48,
    });
    expect(text).toContain('<answer>');
    expect(usage.outputTokens).toBeGreaterThan(3);
    let streamed = '';
    for await (const piece of streamText({ model: provider()('tiny'), prompt, temperature: 0, maxOutputTokens: 48 })
      .textStream)
      streamed += piece;
    expect(streamed).toBe(text);
  });

  it('gets an object of its schema', async () => {
    const schema = jsonSchema<{ word: string; letters: number }>({
      type: 'object',
      properties: { word: { type: 'string', maxLength: 8 }, letters: { type: 'integer' } },
      required: ['word', 'letters'],
      additionalProperties: false,
    });
    const { output } = await generateText({
      model: provider()('tiny'),
      prompt: 'How many letters has "abu"?',
      output: Output.object({ schema }),
      maxOutputTokens: 200,
      seed: 3,
    });
    expect(Object.keys(output).sort()).toEqual(['letters', 'word']);
    expect([typeof output.word, Number.isInteger(output.letters)]).toEqual(['string', true]);
  });

  it('is told in its own error what was wrong', async () => {
    const add = tool({ inputSchema: jsonSchema({ type: 'object', properties: {} }) });
    await expect(
      generateText({ model: provider()('tiny'), prompt: 'x', tools: { add }, maxRetries: 0 }),
    ).rejects.toThrow(/knows no tools/);
  });
});

/** A request that no ordinary client would send. */
function raw(options: { method?: string; path?: string; headers?: Record<string, string>; body?: string }) {
  const { method = 'POST', path = '/v1/chat/completions', headers = {}, body } = options;
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const asked = plainRequest(
      {
        host: '127.0.0.1',
        port: server.port,
        method,
        path,
        headers: { 'Content-Type': 'application/json', ...headers },
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (piece) => {
          text += piece;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    asked.on('error', reject);
    asked.end(body);
  });
}

describe('strangers', () => {
  const body = JSON.stringify({ model: 'tiny', messages, max_tokens: 2 });

  it.each(['/v1/models', '/health', '/metrics'])('a foreign Host does not get %s', async (path) => {
    expect((await raw({ method: 'GET', path, headers: { Host: 'evil.example' } })).status).toBe(403);
    expect((await raw({ method: 'GET', path })).status).toBe(200);
  });

  it('a foreign Host or Origin gets no completion, streamed or not', async () => {
    const stream = JSON.stringify({ model: 'tiny', messages, max_tokens: 2, stream: true });
    for (const sent of [body, stream]) {
      expect((await raw({ body: sent, headers: { Host: `evil.example:${server.port}` } })).status).toBe(403);
      expect((await raw({ body: sent, headers: { Origin: 'https://evil.example' } })).status).toBe(403);
      expect((await raw({ body: sent, headers: { Origin: 'null' } })).status).toBe(403);
      expect((await raw({ body: sent, headers: { Origin: `http://127.0.0.1:${server.port}` } })).status).toBe(200);
    }
  });

  it('a form of a web page is no JSON', async () => {
    expect((await raw({ body, headers: { 'Content-Type': 'text/plain' } })).status).toBe(415);
  });

  it('bodies are bounded and must be JSON', async () => {
    expect((await raw({ body: '{"model": ' })).status).toBe(400);
    expect((await raw({ body: '[]' })).status).toBe(400);
    const large = await raw({
      body: JSON.stringify({ messages: [{ role: 'user', content: 'x'.repeat(9 * 2 ** 20) }] }),
    }).catch((error: NodeJS.ErrnoException) => ({
      status: error.code === 'EPIPE' || error.code === 'ECONNRESET' ? 413 : 0,
      text: '',
    }));
    expect(large.status).toBe(413);
  });

  it('bodies that would take the server long are refused with words', async () => {
    const asked = (more: object) => raw({ body: JSON.stringify({ model: 'tiny', messages, max_tokens: 2, ...more }) });
    const schema = (given: object) => ({
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema: given } },
    });
    const deep = await raw({ body: `{"messages": ${'['.repeat(100_000)}${']'.repeat(100_000)}}` });
    expect(deep).toMatchObject({ status: 400, text: expect.stringContaining('nested deeper than 100 levels') });
    const endless = await asked(schema({ $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } }));
    expect(endless).toMatchObject({ status: 400, text: expect.stringContaining('No response can fit the schema') });
    const wide = await asked(schema({ enum: Array.from({ length: 20_000 }, (_, i) => `${i}`) }));
    expect(wide).toMatchObject({ status: 400, text: expect.stringContaining('more than 5000 parts') });
    const many = await asked({ messages: Array.from({ length: 50_000 }, () => messages[0]) });
    expect(many).toMatchObject({ status: 400, text: expect.stringContaining('50000 messages') });
    // more bytes than this many tokens can stand for
    const told = await asked({ messages: [{ role: 'user', content: 'red blue '.repeat(40_000) }] });
    expect(told.text).toMatch(/the prompt has at least 2\d{4} and 2 were asked for/);
  });

  it.each(['/v1/../etc/passwd', '/v1/chat/completions/', '//v1/models', '/v1/models%00', '/studio'])(
    '%s is not there',
    async (path) => {
      const { status, text } = await raw({ method: 'GET', path });
      expect([status, text]).toEqual([404, expect.stringContaining('There are: /v1/chat/completions, ')]);
    },
  );

  it('HEAD is GET without a body; other methods are refused', async () => {
    for (const path of ['/health', '/v1/models', '/metrics'])
      expect(await raw({ method: 'HEAD', path })).toEqual({ status: 200, text: '' });
    expect((await raw({ method: 'HEAD' })).status).toBe(405);
    expect((await raw({ method: 'HEAD', path: '/health', headers: { Host: 'evil.example' } })).status).toBe(403);
    expect((await raw({ method: 'GET' })).status).toBe(405);
    expect((await raw({ method: 'POST', path: '/health' })).status).toBe(405);
    expect((await raw({ method: 'DELETE', path: '/v1/models' })).status).toBe(405);
  });

  it('an address that others reach needs a key, and the key is asked for', async () => {
    await expect(serve(registry, { host: '0.0.0.0', port: 0 })).rejects.toThrow(/API key is needed/);
    await using locked = await serve(registry, { port: 0, apiKey: 'secret' });
    const ask = (key?: string) =>
      fetch(`${locked.url}/v1/models`, { headers: key === undefined ? {} : { Authorization: `Bearer ${key}` } });
    expect((await ask()).status).toBe(401);
    expect((await ask('secrex')).status).toBe(401);
    expect((await ask('secret')).status).toBe(200);
    expect((await fetch(`${locked.url}/health`)).status).toBe(200);
  });
});

it('counts what it does', async () => {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  expect(text).toMatch(/attune_requests_total\{route="\/v1\/chat\/completions",status="200"\} [1-9]/);
  expect(text).toMatch(/attune_requests_total\{route="\/v1\/chat\/completions",status="403"\} [1-9]/);
  expect(text).toMatch(/attune_first_token_seconds_count [1-9]/);
  expect(text).toMatch(/attune_response_tokens_total [1-9]/);
  expect(text).toMatch(/attune_prompt_tokens_reused [1-9]/);
});
