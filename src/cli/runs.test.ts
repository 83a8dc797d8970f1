/** `attune runs delete` as a person uses it: runs are chosen with keys on a real pseudo-terminal. */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { hasScript, keys, onTerminal } from './terminal/pty.test-support.ts';

let folder: string;
const at = (...names: string[]) => join(folder, ...names);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-runs-'));
  for (const [i, name] of ['alpha', 'beta', 'gamma'].entries()) {
    mkdirSync(at(name, 'step-1'), { recursive: true });
    mkdirSync(at(name, 'step-2'));
    for (const step of ['step-1', 'step-2']) writeFileSync(at(name, step, 'weights'), Buffer.alloc(1000));
    const created = `2026-01-0${3 - i}T00:00:00.000Z`; // newest first: alpha, beta, gamma
    writeFileSync(
      at(name, 'run.json'),
      JSON.stringify({ name, command: 'train sft', status: 'finished', created, step: 2 }),
    );
    writeFileSync(at(name, 'config.json'), '{}');
  }
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe.runIf(hasScript)('runs delete on a terminal', () => {
  const args = () => ['runs', 'delete', '--folder', folder];

  it('arrows move, space marks, letters search, and DELETE deletes what was marked and nothing else', async () => {
    await onTerminal(args(), async ({ type, until, ended }) => {
      await until('search:');
      type(keys.down); // alpha/step-1
      await until(/> \[ \] {5}step-1/);
      type(' ');
      await until(/> \[x\] {5}step-1/);
      type('gam');
      await until('search: gam');
      type(' ');
      await until(/> \[x\] gamma/);
      type(keys.enter);
      await until('Type DELETE');
      type('DELETE\r');
      expect(await ended).toBe(0);
    });
    expect(existsSync(at('alpha', 'step-1'))).toBe(false);
    expect(existsSync(at('gamma'))).toBe(false);
    for (const kept of [at('alpha', 'step-2'), at('beta', 'step-1')]) expect(existsSync(kept)).toBe(true);
  });

  it('keeps all where another word is typed, and where Escape leaves', async () => {
    await onTerminal(args(), async ({ type, until, ended }) => {
      await until('search:');
      type(` ${keys.enter}`);
      await until('Type DELETE');
      type('delete\r');
      await ended;
    });
    await onTerminal(args(), async ({ type, until, ended }) => {
      await until('search:');
      type(' ');
      await until('[x] alpha');
      type(keys.escape);
      await ended;
    });
    for (const name of ['alpha', 'beta', 'gamma']) expect(existsSync(at(name, 'step-1'))).toBe(true);
  });
});

it('runs delete --json shows what it asks about, and answers where nothing is deleted', () => {
  const program = join(import.meta.dirname, '../../bin/attune.mjs');
  const args = [program, 'runs', 'delete', 'alpha', '--json', '--folder', folder];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { input: 'no\n', encoding: 'utf8' });
  expect([status, JSON.parse(stdout)]).toEqual([0, { removed: [], left: [] }]);
  expect(stderr).toMatch(/alpha +\S[^\n]*\n1 folder, [^\n]*\nType DELETE/);
  expect(existsSync(at('alpha', 'step-1'))).toBe(true);
});

it.each(['show', 'delete'])('attune runs %s names a --folder that is not there', async (verb) => {
  const { code, err } = await attune('runs', verb, 'alpha', '--folder', at('nowhere'));
  expect([code, err]).toEqual([2, `attune: --folder ${at('nowhere')}: there is no such folder.\n`]);
});

it('attune runs delete --keep-best keeps the newest snapshot of a run without a best step, and says so', async () => {
  const { code, out } = await attune('runs', 'delete', 'alpha', '--keep-best', '--yes', '--folder', folder);
  expect(code).toBe(0);
  expect(out).toContain(`${at('alpha')} keeps step-2, the newest: without it the run could not go on\n`);
  expect([existsSync(at('alpha', 'step-1')), existsSync(at('alpha', 'step-2'))]).toEqual([false, true]);
});

it.each([
  [['delete', 'alpha', '--keep-last', ''], '--keep-last "" is not a count'],
  [['delete', 'alpha', '--keep-last', '0x1'], '--keep-last "0x1" is not a count'],
  [['delete', 'alpha/step-1', '--older-than', '900w'], 'alpha/step-1 is a snapshot: --older-than'],
  [['delete', 'alpha/step-1', 'beta', '--keep-best'], 'alpha/step-1 is a snapshot: --older-than'],
  [['compare', '#keep'], 'No run has the tag #keep.'],
  [['compare', 'alpha', '#keep'], 'No run has the tag #keep.'],
  [['tag', 'alpha', '--fodler', 'x'], "unknown option '--fodler'"],
])('attune runs %j is refused, and nothing is changed', async (args, message) => {
  const yes = args[0] === 'delete' ? ['--yes'] : [];
  const { code, err } = await attune('runs', ...args, ...yes, '--folder', folder);
  expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  for (const name of ['alpha', 'beta', 'gamma'])
    expect([existsSync(at(name, 'step-1')), existsSync(at(name, 'tags.json'))]).toEqual([true, false]);
});

it('attune runs show says when a run began apart from its state', async () => {
  const { out } = await attune('runs', 'show', 'alpha', '--folder', folder);
  expect(out).toMatch(/^state +finished, step \d+$/m);
  expect(out).toMatch(/^begun +2026-/m);
});

it('attune runs show, compare and tag take a run by its folder, wherever it lies and through a link', async () => {
  const link = at('link');
  symlinkSync(at('beta'), link);
  for (const given of [at('beta'), link]) {
    // The current folder, where runs are looked for by name, is another one.
    const { code, out, err } = await attune('runs', 'show', given);
    expect([code, err]).toEqual([0, '']);
    expect(out).toContain(`${at('beta')}\n`);
  }
  const { out } = await attune('runs', 'compare', 'alpha', at('beta'), link, '--folder', folder, '--json');
  expect(JSON.parse(out).runs).toEqual([at('alpha'), at('beta')]);
  expect((await attune('runs', 'tag', link, 'seen')).out).toBe('beta: seen\n');
});

it('attune runs tag puts tags on and takes them off', async () => {
  const tag = async (...tags: string[]) => (await attune('runs', 'tag', 'alpha', ...tags, '--folder', folder)).out;
  expect([await tag('good', 'long'), await tag('-good')]).toEqual(['alpha: good, long\n', 'alpha: long\n']);
});

it.each([[[]], [['--json']]])('attune runs delete %j ends with 1 where a run cannot be deleted', async (how) => {
  const remove = (name: string) => attune('runs', 'delete', name, '--folder', folder, '--yes', ...how);
  vi.stubEnv('XDG_CACHE_HOME', at('cache'));
  expect((await remove('beta')).code).toBe(0); // whatever is loaded late is there now
  const isRoot = process.geteuid?.() === 0;
  for (const path of [folder, at('alpha')]) chmodSync(path, 0o555);
  if (isRoot) process.seteuid?.(65534);
  try {
    const { code, out, err } = await remove('alpha');
    expect([code, out + err]).toEqual([1, expect.stringContaining('no permission to delete it')]);
  } finally {
    if (isRoot) process.seteuid?.(0);
    for (const path of [folder, at('alpha')]) chmodSync(path, 0o755);
    vi.unstubAllEnvs();
  }
  expect(existsSync(at('alpha', 'step-1'))).toBe(true);
});
