/** Many clients at once: some disconnect at random, one reads nothing, some send malformed requests. */
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LanguageModel } from '../models/index.ts';
import { Random } from '../random.ts';
import { liveTensors } from '../tensor/index.ts';
import { EventStream } from './http.ts';
import { Pace } from './pace.ts';
import { Registry } from './registry.ts';
import { tiny } from './served.test-support.ts';
import { type RunningServer, serve } from './server.ts';

let registry: Registry;
let server: RunningServer;
let offline: LanguageModel;
let before: number;

beforeAll(async () => {
  before = liveTensors();
  offline = await LanguageModel.open(tiny, { dtype: 'float32' });
  registry = new Registry({ dtype: 'float32', maxTokens: 1024, slots: 6 });
  await registry.add('tiny', tiny);
  server = await serve(registry, { port: 0 });
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

/** The text of a stream, up to where the client disconnected. */
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
  });
});

describe('a client that reads nothing', () => {
  /** Sends a request and never reads the response. */
  const silent = (port: number, body: string) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('error', () => {});
    socket.pause();
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    return socket;
  };

  it('does not keep others waiting', async () => {
    const messages = [{ role: 'user', content: 'What is 4 + 5?' }];
    const body = { model: 'tiny', messages, stream: true, n: 5, temperature: 2, max_tokens: 400, logprobs: true };
    const socket = silent(server.port, JSON.stringify({ ...body, top_logprobs: 20 }));
    expect(await streamed({ messages, max_tokens: 8 })).not.toBe('');
    socket.destroy();
  });

  it('is given up', async () => {
    const ended = Promise.withResolvers<boolean>();
    const endless = createServer(async (_, response) => {
      const stream = new EventStream(response, new Pace(), { patienceMs: 200 });
      // More than all buffers between the two hold.
      for (let sent = 0; stream.open && sent < 4000; sent++) await stream.send(['x'.repeat(2 ** 16)]);
      ended.resolve(stream.open);
    });
    await new Promise<void>((resolve) => endless.listen(0, '127.0.0.1', resolve));
    const socket = silent((endless.address() as AddressInfo).port, '');
    expect(await ended.promise).toBe(false);
    socket.destroy();
    endless.close();
  });
});
