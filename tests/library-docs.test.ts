/** The example of docs/library.md, run as it is written, but for where its model and its runs lie. */
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

it('trains, scores and evaluates a reward model in ten lines', async () => {
  const document = readFileSync(join(root, 'docs', 'library.md'), 'utf8');
  const example = /<!-- tests\/library-docs\.test\.ts -->\n```ts\n([\s\S]*?)```/.exec(document)?.[1] ?? '';
  expect(example.split('\n').filter((line) => line.trim() !== '').length).toBeLessThanOrEqual(10);
  await tinyModel(join(folder, 'models', 'tiny'));
  const file = join(folder, 'example.ts');
  writeFileSync(file, example.replace("'attune'", JSON.stringify(pathToFileURL(join(root, 'src', 'index.ts')).href)));
  process.chdir(folder);
  const told: unknown[][] = [];
  const log = vi.spyOn(console, 'log').mockImplementation((...values) => void told.push(values));
  await import(pathToFileURL(file).href).finally(() => log.mockRestore());
  const [accuracy] = told.at(-1) as [number];
  expect(accuracy).toBeGreaterThan(0.9);
  const [scores] = told.at(-2) as [number[]];
  expect(scores.every(Number.isFinite)).toBe(true);
  expect(told.length).toBeGreaterThan(7);
});
