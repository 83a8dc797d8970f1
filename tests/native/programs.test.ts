/** What no operator does on demand, in programs of their own: a throw inside a crew of threads, an exception that nobody catches. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';
import { compiled } from './program.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-native-'));
afterAll(() => rmSync(folder, { recursive: true }));
const aMinute = 60_000;

it('a crew brings an exception of any thread to the caller, and works on', async () => {
  const program = await compiled('crew', 'ops/decode/step.cc', folder);
  const { stdout } = await promisify(execFile)(program, { timeout: aMinute });
  expect(stdout).toBe('right\n');
}, 120_000);

it('a rank says that its store is lost where libtorch would end it without a word', async () => {
  const program = await compiled('lost_store', 'dist/stores.cc', folder);
  const ended = (...args: string[]) => spawnSync(program, args, { encoding: 'utf8', timeout: aMinute, cwd: folder });
  expect(ended()).toMatchObject({
    status: 1,
    stderr: 'attune: The store of rank 0 does not answer (Connection reset by peer): rank 0 has ended.\n',
  });
  expect(ended('other')).toMatchObject({ signal: 'SIGABRT', stderr: expect.stringContaining('another one') });
}, 120_000);
