import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { demonstrationRows } from './demonstrations.ts';
import { defineEnvironment } from './parts/environment.ts';
import { checkEnvironments, environmentFiles, environmentText, openEnvironments, playProblem } from './recipe.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-recipes-'));
afterAll(() => rmSync(folder, { recursive: true }));

const path = join(folder, 'mine.mjs');
writeFileSync(
  path,
  `export default { name: 'mine', levels: 2, start: ({ random, difficulty }) => ({
     messages: 'At level ' + difficulty + ': ' + random.int(1, 1e6), step: () => ({ done: true, reward: 1 }) }) };`,
);
const open = (text: string) => openEnvironments(text, { timeLimitMs: 5000 });
const own = defineEnvironment({
  name: 'own',
  levels: 3,
  start: ({ random }) => ({ messages: `Say ${random.int(0, 50)}`, step: () => ({ done: true }) }),
});

it('reads names, paths, difficulties and weights as tasks have them', async () => {
  using opened = await open(`guess:2,wordle:1-3*0.5,${path}:1-2*2`);
  expect(opened.parts.map(({ environment: { name }, ...rest }) => ({ name, ...rest }))).toEqual([
    { name: 'guess', lowest: 2, highest: 2, weight: 1 },
    { name: 'wordle', lowest: 1, highest: 3, weight: 0.5 },
    { name: 'mine', lowest: 1, highest: 2, weight: 2 },
  ]);
  const drawn = await Promise.all(Array.from({ length: 140 }, (_, i) => opened.problem(7, i)));
  const share = (name: string) => drawn.filter(({ environment }) => environment.name === name).length / drawn.length;
  expect(Math.abs(share('mine') - 2 / 3.5)).toBeLessThan(0.12);
  expect(new Set(drawn.map(({ environment: { name }, difficulty }) => `${name}:${difficulty}`)).size).toBe(6);
});

it('is a text in configs, also of environments that a program hands over', async () => {
  expect(environmentText('guess:1-3')).toBe('guess:1-3');
  expect(environmentText(own)).toBe('own');
  const listed = environmentText([
    { environment: own, difficulty: [1, 3] },
    { environment: 'guess', weight: 2 },
  ]);
  expect(listed).toBe('own:1-3*1,guess:1*2');
  using opened = await open(listed);
  expect(opened.all.map(({ name }) => name)).toEqual(['own', 'guess']);
  expect(environmentFiles(`guess:1-3,${path}:2*0.5,./other.ts`)).toEqual([path, './other.ts']);
});

it.each([
  ['gess', /Unknown environment "gess"\. Did you mean "guess"/],
  ['guess:6', /difficulty 6 is not one of its own: it has 1 to 5/],
  ['guess:3-1', /difficulty 3-1/],
  ['guess:x', /Cannot read "guess:x"|Unknown environment "guess:x"/],
  ['', /Cannot read ""/],
  ['guess*0', /at least one environment needs a weight/],
  ['guess,guess', /names guess:1-1 twice/],
  ['./nope.ts', /There is no environment module/],
  [`${path}:3`, /difficulty 3 is not one of its own: it has 1 to 2/],
])('refuses %j in words', async (text, message) => {
  await expect((async () => (await open(text)).dispose())()).rejects.toThrow(message);
});

it('checks names and files without running anything', () => {
  checkEnvironments(`guess,${path}`);
  expect(() => checkEnvironments('gues')).toThrow(/Did you mean "guess"/);
});

it('never lets training meet what is held out, at any difficulty', async () => {
  using opened = await open('wordle:2-3');
  const keys = async (part: 'train' | 'test', count: number) =>
    new Set(
      (await Promise.all(Array.from({ length: count }, (_, i) => opened.problem(1, i, { part })))).map(
        ({ key }) => key,
      ),
    );
  const [train, test] = [await keys('train', 300), await keys('test', 60)];
  expect(test.size).toBeGreaterThan(15);
  expect([...test].filter((key) => train.has(key))).toEqual([]);
});

it('says so where there are too few problems to hold some out', async () => {
  environmentText(
    defineEnvironment({ name: 'one', start: () => ({ messages: 'Always this.', step: () => ({ done: true }) }) }),
  );
  using opened = await open('one');
  const asked = (part: 'train' | 'test') => opened.problem(1, 0, { part });
  const outcomes = await Promise.allSettled([asked('train'), asked('test')]);
  const failed = outcomes.find(({ status }) => status === 'rejected') as PromiseRejectedResult;
  expect(failed.reason.message).toMatch(/No problem for (training|evaluation) in 2000 draws of one:1/);
});

it('refuses an environment whose seed does not decide the problem', async () => {
  let count = 0;
  environmentText(
    defineEnvironment({ name: 'fickle', start: () => ({ messages: `${count++}`, step: () => ({ done: true }) }) }),
  );
  using opened = await open('fickle');
  await expect(playProblem(await opened.problem(1, 0))).rejects.toThrow(/two different problems for seed/);
});

it('demonstrates as chats, well and badly', async () => {
  using opened = await open('guess:1');
  const rows = async (skill: number) => Array.fromAsync(demonstrationRows(opened, { count: 50, seed: 3, skill }));
  const [good, bad] = [await rows(1), await rows(0)];
  expect(good.every(({ success, reward }) => success && reward === 1)).toBe(true);
  expect(bad.filter(({ success }) => success).length).toBeLessThan(35);
  const [row] = good;
  expect(row?.messages.map(({ role }) => role).join(' ')).toMatch(/^user( assistant user)* assistant$/);
  expect(row?.messages.at(-1)?.content).toMatch(/^\d\d$/);
  await expect(
    Array.fromAsync(demonstrationRows(await open(environmentText(own)), { count: 1, seed: 1, skill: 1 })),
  ).rejects.toThrow(/own has no scripted player/);
});
