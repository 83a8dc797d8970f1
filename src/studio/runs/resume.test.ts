/** A run is resumed when its last process is gone, and a process that cannot go on says why. */
import { spawn } from 'node:child_process';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
import { listCatalogue } from '../../runs/catalogue/catalogue.ts';
import { lockHolder } from '../../runs/index.ts';
import { lockRun } from '../../runs/lock.ts';
import { makeRun, removeFolder, temporaryFolder } from '../studio.test-support.ts';
import { resumeRun } from './resume.ts';

const root = temporaryFolder();
afterAll(() => removeFolder(root));

const above = { verbs: [{ name: 'policy' }] } as never;
const catalogue = { changed() {}, idOf: () => 'id' };

/** A stopped run, and processes of the given program in place of attune. */
function stopped(name: string, program: string, node = process.execPath) {
  const path = makeRun(root, name, { status: 'interrupted', snapshots: ['step-2'] });
  const entry = listCatalogue(root).find((each) => each.name === name);
  if (entry === undefined) throw new Error(`no run ${name}`);
  const started: { at: number; pid: number | undefined }[] = [];
  const detach = () => {
    const console = join(path, 'console');
    const out = openSync(console, 'w');
    const child = spawn(node, ['--input-type=module', '-e', program], { stdio: ['ignore', out, out] });
    started.push({ at: performance.now(), pid: child.pid });
    return { child, console };
  };
  return {
    path,
    started,
    resume: (patience = {}) => resumeRun(catalogue, entry, above, { detach, shown: String }, patience),
  };
}

const writing = (name: string) => `
  import { lockRun } from ${JSON.stringify(join(import.meta.dirname, '../../runs/lock.ts'))};
  lockRun(${JSON.stringify(join(root, name))}, 'train policy');
  setTimeout(() => {}, 2000);
`;

it('waits for the process that still draws the curves, then until the new one writes', async () => {
  const { path, started, resume } = stopped('slow', writing('slow'));
  const lock = lockRun(path, 'train policy');
  const resumed = resume();
  await sleep(400);
  expect(started).toEqual([]);
  lock.release();
  expect(await resumed).toMatchObject({ runId: 'id' });
  expect(lockHolder(path)?.holder.pid).toBe(started[0]?.pid);
  process.kill(started[0]?.pid as number);
});

it('says so where that process goes on', async () => {
  const { path, started, resume } = stopped('stuck', '');
  using _ = lockRun(path, 'train policy');
  await expect(resume({ forOldMs: 300 })).rejects.toThrow(/stuck is still being written .*try again/);
  expect(started).toEqual([]);
});

it('says so where no process can be started', async () => {
  const { resume } = stopped('unstartable', '', join(root, 'no-such-program'));
  await expect(resume()).rejects.toThrow(/unstartable was not resumed: .*ENOENT/);
});

it('gives the last words of a process that did not go on', async () => {
  const { resume } = stopped('failing', `console.log('attune: The data have changed.'); process.exit(2);`);
  await expect(resume()).rejects.toThrow('failing was not resumed: The data have changed.');
});
