/** Requests that are refused, and that refusing takes no work: no prompt is tokenised, nothing is started. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Registry } from './registry.ts';
import { completionPrompts } from './requests.ts';
import { tiny } from './served.test-support.ts';
import { type RunningServer, serve } from './server.ts';

let registry: Registry;
let server: RunningServer;

beforeAll(async () => {
  registry = new Registry({ dtype: 'float32', maxTokens: 512, maxQueue: 16, slots: 4 });
  await registry.add('tiny', tiny);
  server = await serve(registry, { port: 0 });
});
afterAll(async () => {
  await server.drain();
  registry.dispose();
});

async function post(path: string, body: unknown) {
  const answer = await fetch(`${server.url}${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: answer.status, text: await answer.text() };
}
const completions = (prompt: unknown) => post('/v1/completions', { prompt, max_tokens: 2 });

describe('limits come before the work', () => {
  it('many prompts are refused before they are tokenised', async () => {
    const { tokenizer } = registry.find('tiny');
    const encode = vi.spyOn(tokenizer, 'encode');
    // So many that they never fit, however long the client waits.
    expect(await completions(Array.from({ length: 3000 }, (_, i) => `prompt ${i}`))).toMatchObject({
      status: 400,
      text: expect.stringMatching(/3000 responses at once are more than the 16 .*--max-queue/),
    });
    expect(encode).not.toHaveBeenCalled();
    // One of them is too long: none is started.
    const submit = vi.spyOn(registry.find('tiny').sampler, 'submit');
    expect(await completions(['one', 'abu '.repeat(600)])).toMatchObject({ status: 400 });
    expect(submit).not.toHaveBeenCalled();
    vi.restoreAllMocks();
  });

  it('a list of many ids is read at once, and what is no prompt is told', async () => {
    expect(await completions(new Array(200_000).fill(1))).toMatchObject({
      status: 400,
      text: expect.stringContaining('the prompt has 200000'),
    });
    for (const wrong of [[], [1, 'x'], [[]], [[1], ['x']], [-1], [1.5], 7, null])
      expect(await completions(wrong)).toMatchObject({
        status: 400,
        text: expect.stringContaining('prompt: expected text'),
      });
  });

  it('a text whose bytes are too many is not tokenised', async () => {
    const { tokenizer } = registry.find('tiny');
    const spies = [vi.spyOn(tokenizer, 'encode'), vi.spyOn(tokenizer, 'encodeBatch')];
    const content = 'red blue '.repeat(700_000);
    for (const told of [
      await completions(content),
      await post('/v1/chat/completions', { messages: [{ role: 'user', content }] }),
    ])
      expect(told).toMatchObject({ status: 400, text: expect.stringMatching(/context_length_exceeded/) });
    for (const spy of spies) expect(spy).not.toHaveBeenCalled();
    vi.restoreAllMocks();
  });

  it('others get a turn while many prompts are tokenised', async () => {
    using wide = new Registry({ dtype: 'float32', maxTokens: 512 });
    await wide.add('tiny', tiny);
    const { tokenizer } = wide.find('tiny');
    const encode = tokenizer.encode.bind(tokenizer);
    let turns = 0;
    const count = () => {
      turns++;
      next = setImmediate(count);
    };
    let next = setImmediate(count);
    vi.spyOn(tokenizer, 'encode').mockImplementation((text) => {
      const until = performance.now() + 2;
      while (performance.now() < until);
      return encode(text);
    });
    const before = turns;
    await completionPrompts(wide.find('tiny'), { prompt: Array.from({ length: 50 }, (_, i) => `prompt ${i}`) });
    clearImmediate(next);
    expect(turns - before).toBeGreaterThan(5);
  });
});

it('a server that finishes its last requests says so to whoever comes, and then is gone', async () => {
  using own = new Registry({ dtype: 'float32', maxTokens: 2048 });
  await own.add('tiny', tiny);
  const server = await serve(own, { port: 0 });
  const headers = { 'Content-Type': 'application/json' };
  const ask = (body: object) =>
    fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify(body) });
  const messages = [{ role: 'user', content: 'a' }];
  // Some hundred tokens at least.
  const schema = { type: 'array', items: { type: 'boolean' }, minItems: 200, maxItems: 200 };
  const format = { type: 'json_schema', json_schema: { name: 'long', schema } };
  const running = await ask({ messages, response_format: format, stream: true });
  const drained = server.drain();
  // Separate connections, as a load balancer makes.
  const fresh = { headers: { Connection: 'close' } };
  expect((await fetch(`${server.url}/health`, fresh)).status).toBe(503);
  expect(await (await ask({ messages, max_tokens: 1 })).json()).toMatchObject({ error: { code: 'draining' } });
  expect((await running.text()).trimEnd()).toMatch(/\[DONE\]$/);
  await drained;
  await expect(fetch(`${server.url}/health`, fresh)).rejects.toThrow();
});
