import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  checkpointFault,
  cleanStale,
  DiskFullError,
  findCheckpoint,
  listCheckpoints,
  pruneCheckpoints,
  saveCheckpoint,
  supersedeAfter,
} from './checkpoints.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-checkpoints-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const save = (step: number, run = folder, name = `step-${step}`) =>
  saveCheckpoint(run, name, {
    step,
    json: { 'trainer_state.json': { step } },
    write: (dir) => {
      mkdirSync(join(dir, 'tokenizer'));
      writeFileSync(join(dir, 'model.safetensors'), `weights ${step}`);
      writeFileSync(join(dir, 'tokenizer', 'tokenizer.json'), '{}');
    },
  });

describe('saving', () => {
  it('writes files and a manifest, leaves nothing else, and is whole', async () => {
    const path = await save(10);
    expect(path).toBe(join(folder, 'step-10'));
    expect(await checkpointFault(path)).toBeUndefined();
    expect(readdirSync(folder)).toEqual(['step-10']);
    const manifest = JSON.parse(readFileSync(join(path, 'manifest.json'), 'utf8'));
    // CRC-32 of "weights 10", from Python's zlib.
    expect(manifest.files.find((file: { path: string }) => file.path === 'model.safetensors')).toEqual({
      path: 'model.safetensors',
      size: 10,
      crc32: 703090227,
    });
    expect(manifest.files.map((file: { path: string }) => file.path)).toEqual([
      'model.safetensors',
      'tokenizer/tokenizer.json',
      'trainer_state.json',
    ]);
  });

  it('replaces one of the same name', async () => {
    await save(1, folder, 'final');
    const path = await save(2, folder, 'final');
    expect(readFileSync(join(path, 'model.safetensors'), 'utf8')).toBe('weights 2');
    expect(readdirSync(folder)).toEqual(['final']);
  });

  it('removes the temporary folder when a part fails, and keeps what was there', async () => {
    await save(1, folder, 'final');
    const failing = saveCheckpoint(folder, 'final', { step: 2, write: () => Promise.reject(new Error('boom')) });
    await expect(failing).rejects.toThrow('boom');
    expect(readdirSync(folder)).toEqual(['final']);
    expect(readFileSync(join(folder, 'final', 'model.safetensors'), 'utf8')).toBe('weights 1');
  });

  it('says that the disk is full and names the last good one', async () => {
    await save(1);
    const full = saveCheckpoint(folder, 'step-2', {
      step: 2,
      write: (dir) => {
        writeFileSync(join(dir, 'half'), 'x');
        throw Object.assign(new Error('write failed'), { code: 'ENOSPC' });
      },
    });
    await expect(full).rejects.toThrow(DiskFullError);
    await expect(full).rejects.toThrow(/disk is full: .*step-2 could not be written .*step-1, is whole/);
    expect(readdirSync(folder)).toEqual(['step-1']);
  });
});

describe('finding', () => {
  it('takes a step, a run, or the latest run', async () => {
    const old = join(folder, 'run-a');
    const recent = join(folder, 'run-b');
    await save(50, old);
    await save(3, recent);
    await save(20, recent);
    utimesSync(join(old, 'step-50'), new Date(0), new Date(1000));
    expect(await findCheckpoint(join(recent, 'step-3'))).toMatchObject({ step: 3, run: recent });
    expect(await findCheckpoint(recent)).toMatchObject({ step: 20, path: join(recent, 'step-20'), skipped: [] });
    expect(await findCheckpoint('latest', { outputDir: folder })).toMatchObject({ step: 20, run: recent });
    expect(await findCheckpoint('latest', { outputDir: recent })).toMatchObject({ step: 20 });
  });

  it('recognises damage of every kind and offers the one before', async () => {
    for (const step of [1, 2, 3, 4, 5]) await save(step);
    const file = (step: number) => join(folder, `step-${step}`, 'model.safetensors');
    writeFileSync(file(5), 'weights 9');
    writeFileSync(file(4), 'short');
    rmSync(file(3));
    rmSync(join(folder, 'step-2', 'manifest.json'));
    expect(await checkpointFault(join(folder, 'step-5'))).toBe('model.safetensors does not match its checksum');
    expect(await checkpointFault(join(folder, 'step-4'))).toBe('model.safetensors has 5 bytes instead of 9');
    expect(await checkpointFault(join(folder, 'step-3'))).toBe('model.safetensors is missing');
    expect(await checkpointFault(join(folder, 'step-2'))).toMatch(/not written to its end/);
    const found = await findCheckpoint(folder);
    expect(found.step).toBe(1);
    expect(found.skipped.map(({ path }) => path)).toEqual([5, 4, 3, 2].map((step) => join(folder, `step-${step}`)));
    await expect(findCheckpoint(join(folder, 'step-5'))).rejects.toThrow(/damaged: .*checksum.*--resume-from .*step-1/);
    rmSync(file(1));
    await expect(findCheckpoint(folder)).rejects.toThrow(/every checkpoint is damaged/);
  });

  it('explains a wrong path', async () => {
    await save(7);
    await expect(findCheckpoint(join(folder, 'step-8'))).rejects.toThrow(/there is no .*step-8\. There are: step-7\./);
    mkdirSync(join(folder, 'empty'));
    await expect(findCheckpoint(join(folder, 'empty'))).rejects.toThrow(/holds no checkpoints/);
    await expect(findCheckpoint('latest', { outputDir: join(folder, 'empty') })).rejects.toThrow(/no run under/);
  });
});

describe('keeping house', () => {
  it('keeps the newest, the best and the one resumed from', async () => {
    for (const step of [1, 2, 3, 4, 5]) await save(step);
    expect(pruneCheckpoints(folder, 2, [join(folder, 'step-1')]).length).toBe(2);
    expect(listCheckpoints(folder).map(({ step }) => step)).toEqual([1, 4, 5]);
    expect(pruneCheckpoints(folder, undefined)).toEqual([]);
  });

  it('orders by number, not by letter, and knows both names', async () => {
    await save(100);
    await save(9, folder, 'checkpoint-9');
    expect(listCheckpoints(folder).map(({ name }) => name)).toEqual(['checkpoint-9', 'step-100']);
  });

  it('clears what dead processes left and spares the living', async () => {
    const dead = `.tmp-step-3~${hostname()}~4194999~0`;
    const living = `.tmp-step-4~${hostname()}~${process.pid}~0`;
    const elsewhere = '.tmp-step-5~another~1~0';
    for (const name of [dead, living, elsewhere]) mkdirSync(join(folder, name));
    await save(1, folder, `.old-final~${hostname()}~4194999~0`);
    expect(cleanStale(folder)).toEqual([join(folder, dead)]);
    expect(readdirSync(folder).sort()).toEqual([elsewhere, living, 'final'].sort());
  });

  it('sets later checkpoints aside when an earlier one is resumed', async () => {
    for (const step of [1, 2, 3]) await save(step);
    supersedeAfter(folder, 1);
    expect(listCheckpoints(folder).map(({ step }) => step)).toEqual([1]);
    expect(existsSync(join(folder, 'superseded-step-3', 'manifest.json'))).toBe(true);
  });
});
