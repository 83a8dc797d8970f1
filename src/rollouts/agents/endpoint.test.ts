/** What the endpoint replies to agents' clients, and whom it refuses. */
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Answer, CallEndpoint } from './endpoint.ts';

const answer: Answer = { number: 1, text: 'yes', calls: [], finish: 'stop', promptTokens: 3, responseTokens: 1 };
let endpoint: CallEndpoint;
let base = '';
let taken = 0;
/** Calls wait for this promise. */
let gate = Promise.resolve();
beforeAll(async () => {
  endpoint = await CallEndpoint.open({ signMs: 20 });
  base = endpoint.add(async () => {
    taken++;
    await gate;
    return answer;
  });
});
afterAll(() => endpoint.close());

const ask = (more: object = {}, url = `${base}/chat/completions`, headers: Record<string, string> = {}) =>
  fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${endpoint.apiKey}`, ...headers },
    body: JSON.stringify({ messages: [{ role: 'user', content: 'a' }], ...more }),
  });

describe('a client', () => {
  it.each([false, true])('that waits long is given signs of life (stream: %s)', async (stream) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    gate = promise;
    // Headers are sent before the answer, because clients limit the time until headers.
    const response = await ask({ stream });
    expect(response.status).toBe(200);
    setTimeout(resolve, 60);
    const text = await response.text();
    if (stream) {
      expect(text).toMatch(/^(: waiting\n\n)+data: \{/);
      expect(text).toMatch(/data: \[DONE\]\n\n$/);
    } else {
      expect(text).toMatch(/^ +\{/);
      expect(JSON.parse(text).choices[0].message.content).toBe('yes');
    }
    gate = Promise.resolve();
  });

  it('that hangs up while it waits harms no other', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    gate = promise;
    const gone = new AbortController();
    const { host, pathname } = new URL(base);
    const [hostname, port] = host.split(':');
    const before = taken;
    const asked = request({
      ...{ hostname, port, path: `${pathname}/chat/completions`, method: 'POST', signal: gone.signal },
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${endpoint.apiKey}` },
    });
    asked.on('error', () => {});
    asked.end(JSON.stringify({ messages: [{ role: 'user', content: 'a' }], stream: true }));
    await expect.poll(() => taken).toBe(before + 1);
    gone.abort();
    setTimeout(resolve, 60);
    gate = promise;
    expect((await (await ask()).json()) as object).toMatchObject({ choices: [{ message: { content: 'yes' } }] });
    gate = Promise.resolve();
  });

  it('without the key, of a web page, on another path or with too much is refused', async () => {
    const before = taken;
    const at = (path: string) => new URL(path, base).href;
    const statuses = await Promise.all([
      ask({}, undefined, { Authorization: 'Bearer x' }),
      ask({}, undefined, { Origin: 'https://example.org' }),
      ask({}, at('/99/v1/chat/completions')),
      ask({}, at('/chat/completions')),
      ask({}, `${base}/../../health`),
      ask({ messages: [{ role: 'user', content: 'a'.repeat(9 * 2 ** 20) }] }),
      fetch(`${base}/chat/completions`, { headers: { Authorization: `Bearer ${endpoint.apiKey}` } }),
    ]);
    expect(statuses.map(({ status }) => status)).toEqual([401, 403, 404, 404, 404, 413, 405]);
    expect(taken).toBe(before);
  });
});
