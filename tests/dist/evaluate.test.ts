import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { loadModel, saveModel } from '../../src/models/index.ts';
import { tinyModel } from '../support/tiny-model.ts';
import { spawnRanks } from './spawn.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-dist-evaluate-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Every number of a result by its path, and every text. */
function leaves(value: unknown, path = ''): [string, unknown][] {
  if (typeof value !== 'object' || value === null) return [[path, value]];
  return Object.entries(value).flatMap(([name, inner]) => leaves(inner, `${path}/${name}`));
}

it('evaluates and compares in two ranks as in one', async () => {
  const path = await tinyModel(join(folder, 'model'));
  await tinyModel(join(folder, 'other'), { seed: 2 });
  using reward = await loadModel(path);
  reward.addHead('reward', 1);
  const figures = { mean: 0, std: 1, count: 1 };
  const reading = { stripThinking: false, format: 'raw', stepSeparator: '\n', maxLength: 64 };
  reward.notes.reward = { type: 'preference', step: 1, ...reading, ...figures };
  saveModel(reward, await tinyModel(join(folder, 'reward')));
  writeFileSync(
    join(folder, 'prompts.jsonl'),
    ['red', 'blue', 'yes', 'no', 'good', 'bad'].map((prompt) => JSON.stringify({ prompt })).join('\n'),
  );
  writeFileSync(
    join(folder, 'even.mjs'),
    'export default (batch) => batch.map(({ response }) => (response.codePointAt(0) ?? 1) % 2 === 0 ? 1 : 0);',
  );
  const program = join(import.meta.dirname, 'evaluations.ts');
  const alone = spawnSync(process.execPath, [program, folder, join(folder, 'alone')], {
    env: { ...process.env, ATTUNE_THREADS: '1' },
    encoding: 'utf8',
  });
  expect(alone.status, alone.stderr).toBe(0);
  await spawnRanks(2, [program, folder, join(folder, 'together')]);
  const [one, two] = ['alone', 'together'].map(
    (name) => new Map(leaves(JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8')))),
  ) as [Map<string, unknown>, Map<string, unknown>];
  expect([...two.keys()]).toEqual([...one.keys()]);
  expect(one.size).toBeGreaterThan(300);
  for (const [name, value] of one) {
    const other = two.get(name);
    if (typeof value === 'number' && !Number.isInteger(value))
      expect(Math.abs((other as number) - value), name).toBeLessThan(2e-4 * Math.max(1, Math.abs(value)));
    else expect(other, name).toEqual(value);
  }
  // One folder for the comparison, written by the first rank.
  expect(readdirSync(join(folder, 'together'))).toHaveLength(1);
}, 900_000);
