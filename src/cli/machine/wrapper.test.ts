import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it, vi } from 'vitest';
import { leaveWithWrapper } from './wrapper.ts';

it('watches the process that has started this one, and none that an ancestor had', () => {
  const env: Record<string, string> = { ATTUNE_WRAPPER: '41' };
  expect(leaveWithWrapper({ env, parent: () => 42 })).toBeUndefined();
  expect(env).toEqual({});
  expect(leaveWithWrapper({ env, parent: () => 42 })).toBeUndefined();
  const timer = leaveWithWrapper({ env: { ATTUNE_WRAPPER: '42' }, parent: () => 42 });
  expect(timer?.hasRef()).toBe(false);
  clearInterval(timer);
});

/** npm (7) runs a shell (8), which runs the wrapper (9), which runs this process. */
const tree = new Map<number | undefined, number>([
  [undefined, 9],
  [9, 8],
  [8, 7],
  [7, 1],
]);
const names: Record<number, string[]> = { 7: ['npm run attune'], 8: ['sh', '-c', 'node scripts/start.mjs'] };

function watched(parents: Map<number | undefined, number>, env: Record<string, string>) {
  const ends: string[] = [];
  const timer = leaveWithWrapper({
    env,
    parent: (pid) => parents.get(pid) ?? 0,
    words: (pid) => names[pid] ?? ['node', 'x.mjs'],
    leave: () => ends.push('leave'),
    save: () => ends.push('save'),
  });
  return { timer, ends };
}

it('saves when npm is gone, whatever stands between', () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const npm = { npm_command: 'run-script' };
  const cases: [Map<number | undefined, number>, Record<string, string>, number | undefined][] = [
    [new Map(tree), { ...npm, ATTUNE_WRAPPER: '9' }, 8],
    [new Map([...tree, [undefined, 8]]), npm, 8],
    [new Map([...tree, [9, 7]]), { ...npm, ATTUNE_WRAPPER: '9' }, 9],
    [new Map([...tree, [undefined, 7]]), npm, undefined],
  ];
  for (const [parents, env, orphan] of cases) {
    const { ends } = watched(parents, env);
    vi.advanceTimersByTime(1000);
    expect(ends).toEqual([]);
    // Whoever loses its parent gets another one.
    parents.set(orphan, 1);
    vi.advanceTimersByTime(1000);
    expect(ends).toEqual(['save']);
  }
  const parents = new Map(tree);
  const { ends } = watched(parents, { ...npm, ATTUNE_WRAPPER: '9' });
  parents.set(undefined, 1);
  vi.advanceTimersByTime(1000);
  expect(ends).toEqual(['leave']);
  vi.useRealTimers();
});

it('does not watch an npm that has started something else, which started this process', () => {
  expect(watched(new Map([...tree, [undefined, 5], [5, 9]]), { npm_command: 'run-script' }).timer).toBeUndefined();
  expect(watched(tree, {}).timer).toBeUndefined();
});

it('ends a launcher and its ranks when the process before the launcher is killed', async () => {
  const path = (name: string) => JSON.stringify(join(import.meta.dirname, '../../..', name));
  const rank = "console.error('I am', process.pid); setInterval(() => {}, 1000)";
  const launcher = `
    import { leaveWithWrapper } from ${path('src/cli/machine/wrapper.ts')};
    import { launchRanks } from ${path('src/dist/launch/launch.ts')};
    leaveWithWrapper();
    await launchRanks({
      nproc: 2, nnodes: 1, nodeRank: 0, masterAddr: '127.0.0.1', endSeconds: 4, hangSeconds: 0,
      command: [process.execPath, '-e', ${JSON.stringify(rank)}], tell: (line) => process.stderr.write(line + '\\n'),
    });`;
  const wrapper = `
    import { runNode } from ${path('scripts/node24.mjs')};
    await runNode(process.execPath, ['--input-type=module-typescript', '-e', ${JSON.stringify(launcher)}]);`;
  const outer = spawn(process.execPath, ['--input-type=module', '-e', wrapper], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  const ranks = () => Array.from(said.matchAll(/I am (\d+)/g), ([, pid]) => Number(pid));
  await new Promise<void>((resolve, reject) => {
    outer.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
      if (ranks().length === 2) resolve();
    });
    outer.on('close', () => reject(new Error(said)));
  });
  const closed = once(outer, 'close');
  outer.kill('SIGKILL');
  // Every process that can write there is gone when the outputs are closed: wrapper, launcher, rank 0.
  await closed;
  const lives = (pid: number) => {
    try {
      return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
    } catch {
      return false;
    }
  };
  while (ranks().some(lives)) await nextTurn();
});
