import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { saveCheckpoint } from './checkpoints.ts';
import { runFields } from './config/training-fields.ts';
import { lockHolder, lockName, lockRun } from './lock.ts';
import { OpenRun } from './open-run.ts';
import { resolveRun } from './resume.ts';
import { createRun, type RunInfo } from './run.ts';

const root = mkdtempSync(join(tmpdir(), 'attune-lock-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const newFolder = () => mkdtempSync(join(root, 'run-'));

const start = (runName: string) =>
  createRun({ command: 'train sft', outputDir: root, runName, config: {}, reportTo: [], curves: false });

describe('the lock of a run', () => {
  it('is held by one, who is named to the others, and free again afterwards', () => {
    const folder = newFolder();
    const lock = lockRun(folder, 'train sft');
    const held = new RegExp(`written by process ${process.pid} on ${hostname()} \\(attune train sft, since .* s ago`);
    expect(() => lockRun(folder, 'train sft')).toThrow(held);
    lock.release();
    expect(existsSync(join(folder, lockName))).toBe(false);
    lockRun(folder, 'train sft').release();
  });

  it('is taken over from a process that was killed', async () => {
    const folder = newFolder();
    const module = JSON.stringify(new URL('./lock.ts', import.meta.url).href);
    const program = `(await import(${module})).lockRun(${JSON.stringify(folder)}, 'train sft'); console.log('held'); setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    await once(child.stdout, 'data');
    expect(lockHolder(folder)).toMatchObject({ isLive: true, holder: { pid: child.pid } });
    expect(() => lockRun(folder, 'train sft')).toThrow(`process ${child.pid}`);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(lockHolder(folder)?.isLive).toBe(false);
    lockRun(folder, 'train sft').release();
  });

  it('is stale where its number now belongs to another process, or a far machine is long silent', () => {
    const folder = newFolder();
    const path = join(folder, lockName);
    const holder = { pid: process.pid, host: hostname(), command: 'x', since: '', started: '1' };
    writeFileSync(path, JSON.stringify(holder));
    expect(lockHolder(folder)?.isLive).toBe(false);
    writeFileSync(path, JSON.stringify({ ...holder, host: 'elsewhere' }));
    expect(lockHolder(folder)?.isLive).toBe(true);
    const old = new Date(Date.now() - 3_600_000);
    utimesSync(path, old, old);
    expect(lockHolder(folder)?.isLive).toBe(false);
  });
});

describe('a run', () => {
  it('fails when its folder is deleted under it', async () => {
    const run = await start('deleted');
    rmSync(run.folder, { recursive: true });
    expect(() => run.reached(3)).toThrow(/was deleted or replaced/);
    await expect(run.flush()).rejects.toThrow(/was deleted or replaced/);
    await expect(run.finish('finished')).rejects.toThrow(/was deleted or replaced/);
    expect(existsSync(run.folder)).toBe(false);
  });

  it('names the option whose place cannot be written', async () => {
    const file = join(root, 'a-file');
    writeFileSync(file, '');
    const options = { command: 'train sft', config: {}, curves: false };
    await expect(createRun({ ...options, outputDir: join(file, 'x') })).rejects.toThrow(
      /^--output-dir .*a part of the path is a file/,
    );
    await expect(createRun({ ...options, outputDir: '/proc/nope' })).rejects.toThrow(
      /^--output-dir \/proc\/nope cannot/,
    );
    await expect(createRun({ ...options, outputDir: root, logDir: file })).rejects.toThrow(/^--log-dir /);
  });

  it('is left as it was by a resumption that fails before its first step', async () => {
    const run = await start('resumed');
    run.reached(4);
    await run.finish('finished');
    const before = readFileSync(run.path('run.json'), 'utf8');
    const again = await createRun({
      ...{ command: 'train sft', outputDir: root, config: {}, reportTo: [], curves: false },
      resume: { run: run.folder, step: 4 },
    });
    expect(new OpenRun(run.folder).status).toBe('running');
    await again.finish('failed', 'the optimiser does not fit');
    expect(JSON.parse(readFileSync(run.path('run.json'), 'utf8'))).toEqual(JSON.parse(before) as RunInfo);
    expect(new OpenRun(run.folder).status).toBe('finished');
  });
});

describe('what --resume-from names', () => {
  const schema = z.object(runFields({ outputDir: root, logDir: root }));

  it('must be a run of the same command, with a training state, that nobody writes', async () => {
    const run = await start('named');
    await expect(resolveRun(schema, { resumeFrom: run.folder }, 'train sft')).rejects.toThrow(
      /is being written by process/,
    );
    const path = await saveCheckpoint(run.folder, 'step-2', { step: 2, json: { 'trainer_state.json': {} } });
    const final = await saveCheckpoint(run.folder, 'final', { step: 2 });
    const resume = (resumeFrom: string, command = 'train sft') => resolveRun(schema, { resumeFrom }, command);
    await expect(resume(path)).rejects.toThrow(/is being written by process/);
    await run.finish('interrupted');
    await expect(resume(path, 'train reward')).rejects.toThrow(/a run of attune train sft, not of attune train reward/);
    await expect(resume(final)).rejects.toThrow(/neither optimiser nor trainer state/);
    await expect(resume(join(run.folder, 'run.json'))).rejects.toThrow(/that is a file/);
  });
});
