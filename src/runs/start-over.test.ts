import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { quoted } from '../shell.ts';
import { saveCheckpoint } from './checkpoints.ts';
import { openRun } from './open-run.ts';
import { createRun, type RunOptions } from './run.ts';
import { deletion } from './start-over.ts';

let outputDir = '';
beforeEach(() => {
  outputDir = mkdtempSync(join(tmpdir(), 'attune-start-over-'));
});
afterEach(() => rmSync(outputDir, { recursive: true }));

const options = (): RunOptions => ({
  ...{ command: 'train sft', outputDir, runName: 'a', config: { lr: 0.1 }, reportTo: [], curves: false },
});

/** A run that took steps and failed before its first checkpoint. */
async function leftBehind(): Promise<string> {
  const run = await createRun(options());
  for (const step of [1, 2]) run.metrics.row(step, { 'train/loss': 1 });
  await run.finish('failed');
  return run.folder;
}

it('begins anew in the folder of an earlier start that left no checkpoint', async () => {
  const folder = await leftBehind();
  await expect(createRun(options())).rejects.toThrow(/exists/);
  const run = await createRun({ ...options(), isAgain: true });
  expect(run.folder).toBe(folder);
  run.metrics.row(1, { 'train/loss': 2 });
  await run.finish('finished');
  expect(openRun(folder).metrics()).toMatchObject([{ step: 1, 'train/loss': 2 }]);
  // A finished run is kept, even for the same command.
  await expect(createRun({ ...options(), isAgain: true })).rejects.toThrow(/exists/);
});

it.each([{ isAgain: true }, { existing: 'reuse' as const }])(
  'removes its TensorBoard files elsewhere with %o, and no others',
  async (how) => {
    const logDir = join(outputDir, 'logs');
    const events = () =>
      readdirSync(join(logDir, 'a'), { recursive: true, encoding: 'utf8' }).filter((name) => /tfevents/.test(name));
    const given = { ...options(), logDir, reportTo: ['tensorboard'] };
    const first = await createRun(given);
    first.metrics.row(1, { 'train/loss': 1, 'train/examples': 8 });
    await first.finish('failed');
    const before = events();
    const others = `events.out.tfevents.1700000000.elsewhere.1.0`;
    writeFileSync(join(logDir, 'a', others), '');
    const second = await createRun({ ...given, ...how });
    await second.finish('failed');
    const after = events();
    expect(before.filter((name) => after.includes(name))).toEqual([]);
    expect(after).toContain(others);
    expect(after).toHaveLength(2);
  },
);

it('begins anew where the earlier start came no further than the folder', async () => {
  mkdirSync(join(outputDir, 'a'));
  const run = await createRun({ ...options(), isAgain: true });
  await run.finish('failed');
  expect(readdirSync(run.folder)).toContain('run.json');
});

it.each<[string, (folder: string) => unknown, Partial<RunOptions>]>([
  ['a checkpoint', (folder) => saveCheckpoint(folder, 'step-1', { step: 1 }), {}],
  ['a model', (folder) => mkdirSync(join(folder, 'final')), {}],
  ["somebody's file", (folder) => writeFileSync(join(folder, 'notes.txt'), 'mine'), {}],
  ['a checkpoint that was being replaced', (folder) => mkdirSync(join(folder, '.old-step-1~a~1~0')), {}],
  ['another config', () => {}, { config: { lr: 0.2 } }],
  ['another command', () => {}, { command: 'train reward' }],
])('leaves a run alone with %s', async (_, add, more) => {
  const folder = await leftBehind();
  await add(folder);
  const names = readdirSync(folder).sort();
  await expect(createRun({ ...options(), isAgain: true, ...more })).rejects.toThrow(/exists/);
  expect(readdirSync(folder).sort()).toEqual(names);
});

it('leaves a run alone that somebody writes', async () => {
  const first = await createRun(options());
  await expect(createRun({ ...options(), isAgain: true })).rejects.toThrow(/exists/);
  expect(existsSync(join(first.folder, 'run.lock'))).toBe(true);
  await first.finish('failed');
});

it('names the command that deletes a run so that it can be pasted', () => {
  expect(deletion('/my runs/a')).toBe("attune runs delete a --folder '/my runs'");
  expect(deletion('my runs/a')).toBe("attune runs delete 'my runs/a'");
  const here = process.cwd();
  expect(deletion('.')).toBe(`attune runs delete ${quoted(basename(here))} --folder ${quoted(dirname(here))}`);
});
