/** Users' own environments: in this process, and in modules that misbehave as modules may. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { loadEnvironment } from './module.ts';
import { OpenEnvironment } from './opened.ts';
import { defineEnvironment, type StepResult } from './parts/environment.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-environments-'));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function file(source: string): string {
  const path = join(folder, `env-${files++}.ts`);
  writeFileSync(path, source);
  return path;
}

const load = (source: string, timeLimitMs = 5000) => loadEnvironment(file(source), { timeLimitMs });
const begin = (own: OpenEnvironment, seed = 1) => own.start({ seed, difficulty: 1 });
/** A counter environment. It reports how often it was called, and runs the given code. */
const counter = (body = '') => `
  let started = 0;
  export default {
    name: 'counter',
    start({ seed, random }: { seed: number; random: { int(a: number, b: number): number } }) {
      let asked = 0;
      started++;
      return {
        messages: 'Count.',
        key: String(random.int(0, 1e6)),
        async step(response: string, { turn, signal }: { turn: number; signal: AbortSignal }) {
          asked++;
          ${body}
          return { observation: \`\${asked} \${turn} \${response}\`, reward: 0.5 };
        },
      };
    },
  };`;

describe('an environment module', () => {
  it('plays episodes beside one another, each with its own state', async () => {
    using own = await load(counter());
    const [a, b] = [await begin(own), await begin(own, 2)];
    expect([a.messages, a.key === b.key, a.key === (await begin(own)).key]).toEqual([
      [{ role: 'user', content: 'Count.' }],
      false,
      true,
    ]);
    expect(await a.step('x', { turn: 1 })).toEqual({
      observation: [{ role: 'user', content: '1 1 x' }],
      reward: 0.5,
      done: false,
      success: undefined,
      parts: {},
    });
    const [second, first] = await Promise.all([a.step('y', { turn: 2 }), b.step('z', { turn: 1 })]);
    expect([second, first].map(({ observation }) => observation[0]?.content)).toEqual(['2 2 y', '1 1 z']);
  });

  it('is refused in words where it cannot be used', async () => {
    for (const [source, message] of [
      ['export const x = 1;', /exports no environment: .*it exports: x/],
      ['export default { name: "a b", start() {} };', /cannot be an environment's name/],
      ['export default { name: "a", begin() {} };', /exports no environment/],
      ['export default { name: "a", start() {}, level: 3 };', /does not know "level"\. Did you mean "levels"/],
      ['throw new Error("not today");', /cannot be loaded: .*not today/],
      ['export default {', /cannot be loaded/],
      ['process.exit(3);', /process\.exit\(3\) while it was loaded/],
      ['await new Promise(() => {});', /waits at its top level for what never comes/],
    ] as const)
      await expect(load(source)).rejects.toThrow(message);
    await expect(loadEnvironment('./nope.ts')).rejects.toThrow(/There is no environment module \.\/nope\.ts/);
  });

  it.each([
    ['throw new Error("no network");', /counter failed at turn 1 \(seed 1, difficulty 1\): no network/],
    ['throw "text";', /failed at turn 1 .*: text/],
    ['process.exit(0);', /left by process\.exit\(0\): an environment may not end the program/],
    ['Promise.reject(new Error("left alone")); await new Promise(() => {});', /outside of a step: left alone/],
    ['await new Promise(() => {});', /counter took longer than 0.4 s for a step/],
    ['for (;;);', /counter took longer than 0.4 s for a step/],
    ['return { observation: () => 1 };', /could not be cloned/],
  ])('that does %j ends a step in words', async (body, message) => {
    using own = await load(counter(body), 400);
    await expect((await begin(own)).step('x', { turn: 1 })).rejects.toMatchObject({
      name: 'EnvironmentError',
      fault: 'step',
      message: expect.stringMatching(message),
    });
  });

  it('goes on with the other episodes where one never answers', async () => {
    using own = await load(counter('if (response === "hang") await new Promise(() => {});'), 300);
    const [bad, good] = [await begin(own), await begin(own)];
    await good.step('a', { turn: 1 });
    await expect(bad.step('hang', { turn: 1 })).rejects.toThrow(/longer than/);
    expect((await good.step('b', { turn: 2 })).observation[0]?.content).toBe('2 2 b');
  });

  it('plays the other episodes again in a new thread where one is in an endless loop', async () => {
    const body =
      'if (response === "loop") for (;;); if (response === "slow") await new Promise((r) => setTimeout(r, 1200));';
    using own = await load(counter(body), 500);
    const [bad, good, busy, waiting] = [await begin(own), await begin(own), await begin(own), await begin(own)];
    await good.step('a', { turn: 1 });
    await busy.step('a', { turn: 1 });
    const other = waiting.step('c', { turn: 1 });
    const failed = bad.step('loop', { turn: 1 });
    // Queued after the endless loop, it has not started, so it is not to blame.
    const after = busy.step('b', { turn: 2 });
    await expect(failed).rejects.toThrow(/longer than 0.5 s/);
    expect((await other).observation[0]?.content).toBe('1 1 c');
    expect((await after).observation[0]?.content).toBe('2 2 b');
    expect((await good.step('b', { turn: 2 })).observation[0]?.content).toBe('2 2 b');
    await expect(busy.step('slow', { turn: 3 })).rejects.toThrow(/longer/);
  });

  it('goes on with the others however many end the thread one after another', async () => {
    using own = await load(
      counter('if (response === "exit") process.exit(1); if (response === "loop") for (;;);'),
      150,
    );
    const turns = ['exit', 'exit', 'exit', 'exit', 'loop', 'a'];
    const episodes = await Promise.all(turns.map(() => begin(own)));
    const steps = episodes.map((episode, i) => episode.step(turns[i] as string, { turn: 1 }));
    const results = await Promise.allSettled(steps);
    expect(results.map(({ status }) => status)).toEqual([...Array(5).fill('rejected'), 'fulfilled']);
  });

  it('may take as long as it likes where the limit is longer than a timer can be', async () => {
    const slow = counter('await new Promise((r) => setTimeout(r, 30));');
    using own = await load(slow, 1e12);
    const inProgram = new OpenEnvironment(
      {
        name: 'slow',
        start: () => ({ messages: 'x', step: async () => ({ done: await sleep(30, true) }) }),
      },
      { timeLimitMs: Number.POSITIVE_INFINITY },
    );
    for (const each of [own, inProgram])
      await expect((await begin(each)).step('a', { turn: 1 })).resolves.toBeDefined();
  });

  it('is stopped by a signal at once', async () => {
    using own = await load(counter('await new Promise(() => {});'), 60_000);
    const controller = new AbortController();
    const step = (await begin(own)).step('x', { turn: 1, signal: controller.signal });
    setTimeout(() => controller.abort(new Error('Ctrl-C')), 50);
    const started = performance.now();
    await expect(step).rejects.toThrow('Ctrl-C');
    expect(performance.now() - started).toBeLessThan(1000);
  });

  it('frees its episodes once, and not those of a thread that is gone', async () => {
    using own = await load(`
      const ended = [];
      export default { name: 'e', start: ({ seed }) => ({
        messages: 'x', key: ended.join(),
        step: () => ({ done: true, observation: ended.join() }),
        end: () => void ended.push(seed),
      }) };`);
    const [a, b] = [await begin(own, 1), await begin(own, 2)];
    await a.end();
    await a.end();
    expect((await b.step('', { turn: 1 })).observation).toEqual([{ role: 'user', content: '1' }]);
  });
});

describe('an environment of a program', () => {
  const playing = (step: () => unknown) =>
    new OpenEnvironment(
      defineEnvironment({
        name: 'own',
        parts: ['speed'],
        start: () => ({ messages: 'Go.', step: step as () => StepResult }),
      }),
      { timeLimitMs: 100 },
    );
  const stepped = async (step: () => unknown) => (await begin(playing(step))).step('', { turn: 1 });

  it.each([
    [null, /gave null: it must give \{ observation/],
    [{}, /gave no observation and did not end the episode/],
    [{ observation: [] }, /an empty list of messages/],
    [{ observation: 3 }, /gave the observation 3/],
    [{ observation: { role: 'assistant', content: 'I win' } }, /a role of user, tool, system/],
    [{ observation: [{ role: 'user' }] }, /gave the observation/],
    [{ obs: 'x' }, /does not know "obs"/],
    [{ done: 1 }, /gave done: 1: expected true or false/],
    [{ done: true, success: 'yes' }, /gave success: "yes"/],
    [{ done: true, reward: '1' }, /gave the reward "1": a reward is a number/],
    [{ done: true, parts: { fun: 1 } }, /a part "fun" that it does not list: .*\['speed', 'fun'\]/],
    [{ done: true, parts: { speed: '1' } }, /gave "1" for its part "speed"/],
  ])('that gives %j breaks its contract', async (result, message) => {
    await expect(stepped(() => result)).rejects.toMatchObject({
      fault: 'contract',
      message: expect.stringMatching(message),
    });
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, 1e30])('that rewards %d fails at that step', async (reward) => {
    await expect(stepped(() => ({ done: true, reward }))).rejects.toMatchObject({ fault: 'step' });
  });

  it('takes the sum of the parts for the reward, a message for text, and an empty text for a word', async () => {
    expect(await stepped(() => ({ done: true, parts: { speed: 0.25 } }))).toMatchObject({ reward: 0.25 });
    const observation = [{ role: 'tool', content: '' }];
    expect(await stepped(() => ({ observation: observation[0] }))).toMatchObject({ observation, reward: 0 });
    expect(await stepped(() => ({ observation: '' }))).toMatchObject({ observation: [{ role: 'user', content: '' }] });
  });

  it('may say the next thing in the same object', async () => {
    const told = { role: 'user', content: '' };
    const episode = await begin(
      playing(() => {
        told.content += '!';
        return { observation: told };
      }),
    );
    const [first, second] = [await episode.step('', { turn: 1 }), await episode.step('', { turn: 2 })];
    expect([first, second].map(({ observation }) => observation[0]?.content)).toEqual(['!', '!!']);
  });

  it('is not waited for longer than it may take, and is told', async () => {
    let told = false;
    const own = new OpenEnvironment(
      {
        name: 'slow',
        start: () => ({
          messages: 'x',
          step: async (_, { signal }) => {
            signal.addEventListener('abort', () => (told = true));
            await sleep(5000, undefined, { ref: false });
            return { done: true };
          },
        }),
      },
      { timeLimitMs: 60 },
    );
    await expect((await begin(own)).step('', { turn: 1 })).rejects.toThrow(/slow took longer than 0.06 s/);
    expect(told).toBe(true);
  });

  it.each([
    [{ name: 'x', start: () => undefined }, /started with undefined/],
    [{ name: 'x', start: () => ({ messages: [] }) }, /started with the messages \[\]/],
    [{ name: 'x', start: () => ({ messages: 'a' }) }, /without a step/],
    [{ name: 'x', start: () => ({ messages: 'a', key: 3, step() {} }) }, /the key 3/],
    [
      {
        name: 'x',
        start: () => {
          throw new Error('no docker');
        },
      },
      /x failed to start \(seed 1, difficulty 1\): no docker/,
    ],
  ])('that starts wrongly is told: %#', async (definition, message) => {
    await expect(begin(new OpenEnvironment(definition as never, { timeLimitMs: 1000 }))).rejects.toThrow(message);
  });
});
