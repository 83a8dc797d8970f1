/** Many clients at once: those that come and go at random, one that reads nothing, and those who send nothing good. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LanguageModel } from '../models/index.ts';
import { Random } from '../random.ts';
import { liveTensors } from '../tensor/index.ts';
import { Registry } from './registry.ts';
import { tiny } from './served.test-support.ts';
import { type RequestEntry, type RunningServer, serve } from './server.ts';

let registry: Registry;
let server: RunningServer;
let offline: LanguageModel;
let before: number;
const entries: RequestEntry[] = [];

beforeAll(async () => {
  before = liveTensors();
  offline = await LanguageModel.open(tiny, { dtype: 'float32' });
  registry = new Registry({ dtype: 'float32', maxTokens: 1024, slots: 6 });
  await registry.add('tiny', tiny);
  server = await serve(registry, { port: 0, patienceMs: 400, onRequest: (entry) => void entries.push(entry) });
});
afterAll(async () => {
  await server.drain();
  registry.dispose();
  offline.dispose();
  expect(liveTensors()).toBe(before);
});

const post = (body: object, signal?: AbortSignal) =>
  fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: 'tiny', ...body }),
    ...(signal === undefined ? {} : { signal }),
  });

/** The text of a stream, or what came of it before the client went. */
async function streamed(body: object, signal?: AbortSignal): Promise<string> {
  const answer = await post({ ...body, stream: true }, signal);
  let text = '';
  let left = '';
  const decoder = new TextDecoder();
  for await (const piece of answer.body ?? []) {
    left += decoder.decode(piece as Uint8Array, { stream: true });
    const events = left.split('\n\n');
    left = events.pop() ?? '';
    for (const event of events.filter((each) => each.startsWith('data: {')))
      text += JSON.parse(event.slice('data: '.length)).choices[0]?.delta.content ?? '';
  }
  return text;
}

describe('a text does not depend on what else is in the batch', () => {
  const questions = ['Spell "abu" backward.', 'What is 4 + 5?', 'Sort these: 3 1 2.', 'Say something.'];

  it('under random arrivals and departures each is that of the offline sampler', async () => {
    const random = new Random(7);
    const cases = Array.from({ length: 40 }, (_, i) => ({
      messages: [{ role: 'user' as const, content: questions[random.int(0, 3)] as string }],
      seed: random.int(0, 1e6),
      temperature: [0, 0.7, 1, 1.4][random.int(0, 3)] as number,
      max_tokens: 8 + random.int(0, 56),
      wait: random.int(0, 600),
      leaves: i % 3 === 0 ? random.int(5, 60) : undefined,
      stream: random.int(0, 1) === 0,
    }));
    const made = await Promise.all(
      cases.map(async ({ wait, leaves, stream, ...body }) => {
        await new Promise((resolve) => setTimeout(resolve, wait));
        const signal = leaves === undefined ? undefined : AbortSignal.timeout(leaves);
        try {
          if (stream) return await streamed(body, signal);
          const answer = (await (await post(body, signal)).json()) as { choices: { message: { content: string } }[] };
          return answer.choices[0]?.message.content;
        } catch (error) {
          if (signal?.aborted) return undefined;
          throw error;
        }
      }),
    );
    let compared = 0;
    for (const [i, text] of made.entries()) {
      const { messages, seed, temperature, max_tokens: maxNewTokens } = cases[i] as (typeof cases)[number];
      if (text === undefined) continue;
      const alone = await offline.generate({ messages, seed, temperature, maxNewTokens });
      expect(text).toBe(alone.text);
      compared++;
    }
    expect(compared).toBeGreaterThanOrEqual(26);
  }, 30_000);
});

describe('a client that reads nothing', () => {
  it('is given up, and others do not wait for it', async () => {
    const body = JSON.stringify({
      ...{ model: 'tiny', messages: [{ role: 'user', content: 'x' }], stream: true, n: 6, temperature: 2, seed: 1 },
      ...{ max_tokens: 900, logprobs: true, top_logprobs: 20 }, // large events, so that buffers fill
    });
    const socket = connect({ port: server.port, host: '127.0.0.1' });
    socket.on('error', () => {});
    socket.pause();
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    const quick = await streamed({ messages: [{ role: 'user', content: 'What is 4 + 5?' }], max_tokens: 8 });
    expect(quick).not.toBe('');
    const since = entries.length;
    const left = () => entries.slice(since).find(({ route }) => route === '/v1/chat/completions');
    for (let i = 0; i < 400 && left() === undefined; i++) await new Promise((resolve) => setTimeout(resolve, 50));
    expect(left()).toBeDefined(); // the server no longer has it, though the client never closed
    // Given up before it was whole: nobody counts six responses of 900 tokens.
    expect(left()?.usage?.completion_tokens ?? 0).toBeLessThan(5400);
    socket.destroy();
  }, 30_000);
});
