import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { Attempts } from './attempts.ts';

const root = mkdtempSync(join(tmpdir(), 'attune-attempts-'));
afterAll(() => rmSync(root, { recursive: true }));
const command = ['train', 'sft', '--run-name', 'a'];

it('goes on from the last checkpoint, also after an attempt that ended before it told of a folder', () => {
  const path = join(root, 'run');
  mkdirSync(join(path, 'step-5'), { recursive: true });
  const attempts = new Attempts(command);
  const resumed = [...command, '--resume-from', path];
  expect(attempts.after({ path, isNew: true })).toEqual(resumed);
  expect(attempts.after(undefined)).toEqual(resumed);
  expect(attempts.after({ path, isNew: false })).toEqual(resumed);
  expect(existsSync(path)).toBe(true);
});

it('begins anew in the place of a run without a checkpoint', () => {
  const path = join(root, 'early');
  const attempts = new Attempts(command);
  expect(attempts.after(undefined)).toEqual(command);
  for (const told of [{ path, isNew: true }, undefined, { path, isNew: false }]) {
    mkdirSync(path);
    expect(attempts.after(told)).toEqual(command);
    expect(existsSync(path)).toBe(false);
  }
});

it('leaves a folder alone that was there before the launch, and takes another --resume-from away', () => {
  const path = join(root, 'earlier');
  mkdirSync(path);
  for (const given of [['--resume-from', 'x'], ['--resume-from=x'], ['--resume_from', 'x']]) {
    const attempts = new Attempts([...command, ...given]);
    expect(attempts.after({ path, isNew: false })).toEqual([...command, ...given]);
    expect(existsSync(path)).toBe(true);
    mkdirSync(join(path, 'step-3'));
    expect(attempts.after(undefined)).toEqual([...command, '--resume-from', path]);
    rmSync(join(path, 'step-3'), { recursive: true });
  }
});

it('goes on with a pipeline by its own option', () => {
  const path = join(root, 'pipeline');
  mkdirSync(join(path, 'step-5'), { recursive: true });
  const pipeline = ['train', '--config', 'p.yaml'];
  for (const given of [pipeline, [...pipeline, '--resume']])
    expect(new Attempts(given).after({ path, isNew: true })).toEqual([...pipeline, '--resume']);
});

it('tells how a launch that is not started again goes on', () => {
  const path = join(root, 'ended');
  mkdirSync(path);
  const folder = { path, isNew: true };
  expect(new Attempts(command).wayOn(undefined)).toBeUndefined();
  expect(new Attempts(command).wayOn(folder)).toBe(
    `${path} has no checkpoint to go on from; before a run can have its name again, delete it with: attune runs delete ended --folder ${root}`,
  );
  expect(new Attempts(command).wayOn({ path, isNew: false })).toBeUndefined();
  const dated = join(root, '2026-11-17_23-10-00');
  mkdirSync(dated);
  expect(new Attempts(command).wayOn({ path: dated, isNew: true })).toMatch(/begins anew, in another folder$/);
  const pipeline = new Attempts(['train', '--config', 'p.yaml']);
  expect(pipeline.wayOn(undefined)).toBeUndefined();
  expect(pipeline.wayOn(folder)).toBe(
    `${path} has no checkpoint; the same command with --resume goes on with the models that are not finished`,
  );
  mkdirSync(join(path, 'step-5'));
  const last = `the last checkpoint is ${join(path, 'step-5')}; the same command with`;
  expect(pipeline.wayOn(undefined)).toBe(`${last} --resume goes on from it`);
  const attempts = new Attempts(command);
  expect(attempts.wayOn(folder)).toBe(`${last} --resume-from ${path} goes on from it`);
  expect(attempts.wayOn(undefined)).toBe(`${last} --resume-from ${path} goes on from it`);
});
