import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { saveCheckpoint } from './checkpoints.ts';
import { listRuns, openRun } from './open-run.ts';
import { createRun } from './run.ts';
import { dateTimeName } from './run-folder.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-run-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const options = () => ({
  command: 'train reward',
  outputDir: join(folder, 'out'),
  logDir: join(folder, 'logs'),
  config: { lr: 1e-5, hf_token: 'abc' },
  seed: 7,
});

describe('a run folder', () => {
  it('names runs by date and time, unique under concurrency', async () => {
    expect(dateTimeName(new Date(2026, 0, 2, 3, 4, 5))).toBe('2026-01-02_03-04-05');
    const runs = await Promise.all(Array.from({ length: 8 }, () => createRun(options())));
    expect(new Set(runs.map((run) => run.name)).size).toBe(8);
    for (const run of runs) await run.finish('finished');
    expect(listRuns(join(folder, 'out')).length).toBe(8);
  });

  it('holds config, versions, metrics, history and curves', async () => {
    const run = await createRun({ ...options(), runName: 'first' });
    for (const step of [1, 2, 3]) run.metrics.row(step, { 'train/loss': 1 / step });
    run.reached(3);
    await saveCheckpoint(run.folder, 'step-3', { step: 3 });
    const store = await run.rollouts();
    await store.add([
      { step: 1, epoch: 0, promptIndex: 0, rolloutIndex: 0, prompt: 'p', completion: 'c', reward: 1, advantage: 0 },
    ]);
    await run.finish('finished');

    const opened = openRun(run.folder);
    expect(opened.config).toEqual({ lr: 1e-5 });
    expect(opened.versions).toMatchObject({
      attune: expect.stringMatching(/^\d/),
      node: process.version,
      libtorch: expect.stringMatching(/^\d/),
      seed: 7,
    });
    expect(opened.info).toMatchObject({ name: 'first', command: 'train reward', status: 'finished', step: 3 });
    expect(opened.metrics().map((row) => row['train/loss'])).toEqual([1, 1 / 2, 1 / 3]);
    expect(opened.checkpoints().map(({ name }) => name)).toEqual(['step-3']);
    using rollouts = opened.rollouts();
    expect(rollouts.query().length).toBe(1);
    expect(opened.sizeBytes()).toBeGreaterThan(1000);
    expect(JSON.parse(readFileSync(run.path('training_history.json'), 'utf8'))['train/loss'].value).toEqual([
      1,
      1 / 2,
      1 / 3,
    ]);
    expect(existsSync(run.path('training_curves.png'))).toBe(true);
    expect(readdirSync(join(folder, 'logs', 'first'))[0]).toMatch(/^events\.out\.tfevents/);
    expect(listRuns(join(folder, 'out'))[0]?.name).toBe('first');
  });

  it('goes on after a step, dropping what came later', async () => {
    const first = await createRun({ ...options(), runName: 'r' });
    for (const step of [1, 2, 3]) first.metrics.row(step, { x: step });
    for (const step of [1, 2, 3]) await saveCheckpoint(first.folder, `step-${step}`, { step });
    await first.finish('interrupted');
    const again = await createRun({ ...options(), resume: { run: first.folder, step: 2 } });
    expect(again.info).toMatchObject({ name: 'r', step: 2, status: 'running', created: first.info.created });
    again.metrics.row(3, { x: 33 });
    await again.finish('finished');
    const opened = openRun(first.folder);
    expect(opened.metrics().map((row) => row.x)).toEqual([1, 2, 33]);
    expect(opened.checkpoints().map(({ name }) => name)).toEqual(['step-1', 'step-2']);
  });

  it('knows a run whose process is gone', async () => {
    const run = await createRun({ ...options(), runName: 'r' });
    expect(openRun(run.folder).status).toBe('running');
    const path = run.path('run.lock');
    const holder = readFileSync(path, 'utf8');
    writeFileSync(path, JSON.stringify({ ...JSON.parse(holder), pid: 4194999 }));
    expect(openRun(run.folder).status).toBe('killed');
    writeFileSync(path, holder);
    await run.finish('finished');
    await run.finish('failed');
    expect(openRun(run.folder).status).toBe('finished');
  });

  it('refuses to mix its rollouts with those of another run of its name', async () => {
    const placed = { ...options(), runName: 'r', rolloutsDir: join(folder, 'rollouts') };
    const first = await createRun(placed);
    await first.rollouts();
    await first.finish('finished');
    await expect(createRun({ ...placed, outputDir: join(folder, 'elsewhere') })).rejects.toThrow(
      /--rollouts-dir .*r\/rollouts\.db holds the rollouts of another run "r"\. Choose another/,
    );
    const again = await createRun({ ...placed, resume: { run: first.folder, step: 0 } });
    expect(again.info.rollouts).toBe(join(folder, 'rollouts', 'r', 'rollouts.db'));
    await again.finish('finished');
  });

  it('takes its rollouts along when it is renamed, and leaves those of the old name', async () => {
    const placed = { ...options(), runName: 'r', rolloutsDir: join(folder, 'rollouts') };
    const first = await createRun(placed);
    await first.rollouts();
    await first.finish('finished');
    const renamed = join(dirname(first.folder), 'renamed');
    renameSync(first.folder, renamed);
    const old = join(folder, 'rollouts', 'r', 'rollouts.db');
    const mark = new DatabaseSync(old);
    mark.exec('CREATE TABLE mark (x)');
    mark.close();
    const resumed = async () => {
      const run = await createRun({ ...placed, resume: { run: renamed, step: 0 } });
      try {
        await run.rollouts();
        return run.info.rollouts as string;
      } finally {
        await run.finish('finished');
      }
    };
    const path = await resumed();
    expect(path).toBe(join(folder, 'rollouts', 'renamed', 'rollouts.db'));
    const copy = new DatabaseSync(path);
    expect(copy.prepare('SELECT * FROM mark').all()).toEqual([]);
    copy.close();
    expect(existsSync(old)).toBe(true);
    expect(await resumed()).toBe(path);
    writeFileSync(join(renamed, 'run.json'), JSON.stringify({ rollouts: old }));
    await expect(resumed()).rejects.toThrow(/renamed\/rollouts\.db, which holds those of another run/);
  });

  it('refuses a taken or impossible name, and a folder that is no run', async () => {
    const run = await createRun({ ...options(), runName: 'taken' });
    await run.finish('failed', 'token=hf_abcdefghijklmnopqrstuv');
    expect(openRun(run.folder).info?.reason).toBe('token=[redacted]');
    const taken = () => createRun({ ...options(), runName: 'taken' });
    await expect(taken()).rejects.toThrow(
      /taken exists, and has no checkpoint to go on from\. Choose another --run-name, or delete it with: attune runs delete taken --folder \S+$/,
    );
    mkdirSync(join(run.folder, 'final'));
    await expect(taken()).rejects.toThrow(/exists\. Choose another --run-name\.$/);
    rmSync(join(run.folder, 'final'), { recursive: true });
    writeFileSync(join(run.folder, '..', 'file'), '');
    const onFile = createRun({ ...options(), runName: 'file' });
    await expect(onFile).rejects.toThrow(/--run-name file: \S+file is a file\. Choose another --run-name\.$/);
    const saved = await saveCheckpoint(run.folder, 'step-1', { step: 1 });
    await expect(taken()).rejects.toThrow(/exists\. Choose another --run-name, or go on with --resume-from .*taken\.$/);
    rmSync(saved, { recursive: true });
    await expect(createRun({ ...options(), runName: '../x' })).rejects.toThrow(/single folder name/);
    for (const loss of [1, 2]) {
      const run = await createRun({ ...options(), runName: 'taken', existing: 'reuse' });
      run.metrics.row(0, { 'eval/loss': loss });
      await run.finish('finished');
    }
    expect(
      openRun(run.folder)
        .metrics()
        .map((row) => row['eval/loss']),
    ).toEqual([2]);
    expect(() => openRun(join(folder, 'out', 'takn'))).toThrow(/There is no run folder .*Did you mean "taken"/);
  });
});
