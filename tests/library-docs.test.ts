/** Examples of docs/library.md, run as they are written, but for where models and runs lie, and for how long they take. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import { tinyModel } from './support/tiny-model.ts';

const root = join(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'attune-library-'));
const before = process.cwd();
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => process.chdir(before));

/** Runs the example that begins with these imports; gives what it printed, line by line. */
async function run(name: string, imported: string, edit = (text: string) => text): Promise<unknown[][]> {
  await tinyModel(join(folder, 'models', 'tiny'));
  const file = join(folder, `${name}.ts`);
  const text = edit(example(imported));
  const source = (...way: string[]) => JSON.stringify(pathToFileURL(join(root, 'src', ...way, 'index.ts')).href);
  writeFileSync(file, text.replace("'attune'", source()).replace("'attune/tasks'", source('tasks')));
  process.chdir(folder);
  const told: unknown[][] = [];
  const log = vi.spyOn(console, 'log').mockImplementation((...values) => void told.push(values));
  await import(pathToFileURL(file).href).finally(() => log.mockRestore());
  return told;
}

function example(imported: string): string {
  const document = readFileSync(join(root, 'docs', 'library.md'), 'utf8');
  const marked = document.matchAll(/<!-- tests\/library-docs\.test\.ts -->\n```ts\n([\s\S]*?)```/g);
  return Array.from(marked, ([, text = '']) => text).find((text) => text.includes(imported)) ?? '';
}

it('trains, scores and evaluates a reward model in ten lines', async () => {
  expect(
    example('trainReward')
      .split('\n')
      .filter((line) => line.trim() !== '').length,
  ).toBeLessThanOrEqual(10);
  const told = await run('reward', 'trainReward');
  const [accuracy] = told.at(-1) as [number];
  expect(accuracy).toBeGreaterThan(0.9);
  const [scores] = told.at(-2) as [number[]];
  expect(scores.every(Number.isFinite)).toBe(true);
  expect(told.length).toBeGreaterThan(7);
});

it('trains a policy, replays a step and compares two methods', async () => {
  const brief = (text: string) =>
    text
      .replaceAll('teps: 50', 'teps: 2')
      .replace('maxNewTokens: 64', 'maxNewTokens: 6')
      .replace('evalNumPrompts: 32', 'evalNumPrompts: 2');
  const told = await run('policy', 'trainPolicy', brief);
  expect(told.slice(0, 2).map(([step]) => step)).toEqual([1, 2]);
  expect(told.at(-2)).toEqual([true]);
  const [winners] = told.at(-1) as [Record<string, string | null>];
  expect(Object.keys(winners)).toEqual(['quality', 'stability', 'convergence', 'efficiency']);
  // null: in two steps neither may gain anything
  expect(['grpo', 'ppo', null]).toContain(winners.quality);
});

it('trains on a task of your own', async () => {
  const told = await run('task', 'defineTask');
  expect(told[0]?.[0]).toMatch(/^What is 2 \* \d+\?/);
  expect(told.slice(1)).toEqual([[1], [2]]);
});
