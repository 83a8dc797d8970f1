/** Ranks without a launcher watch one another: the others name a hung rank, and end. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { freePort } from './meeting.ts';

/** Joins the world, says so, and waits in a collective that the other rank never enters. */
const program = `
import { joinWorld } from ${JSON.stringify(join(import.meta.dirname, 'world.ts'))};
import { SharedStore } from ${JSON.stringify(join(import.meta.dirname, 'store.ts'))};
const world = await joinWorld();
if (process.env.BEGINS && world.rank === 1) {
  const begun = () => new SharedStore(1).get('group/world/at/1');
  const before = await begun();
  void world.gather(0);
  while ((await begun()) === before);
}
console.log('there');
if (process.env.BEGINS && world.rank === 0) await new Promise((told) => process.stdin.once('data', told));
if (world.rank === 1 && process.env.BLOCKS) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
if (world.rank === 1) setInterval(() => {}, 1000);
else await world.gather(0);`;

const started: ChildProcess[] = [];
afterAll(() => {
  for (const child of started) child.kill('SIGKILL');
});

interface Rank {
  child: ChildProcess;
  isThere: Promise<void>;
  ended: Promise<{ code: number | null; said: string }>;
}

async function startWorld(more: Record<string, string> = {}): Promise<[Rank, Rank]> {
  const port = String(await freePort());
  return [0, 1].map((rank): Rank => {
    const place = { RANK: `${rank}`, WORLD_SIZE: '2', LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: '2' };
    const meeting = { MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port, ATTUNE_THREADS: '1' };
    const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', program], {
      env: { ...process.env, ...place, ...meeting, ATTUNE_DIST_HANG: '4', ...more },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    started.push(child);
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    return {
      child,
      isThere: new Promise((resolve) => child.stdout.once('data', () => resolve())),
      ended: new Promise((resolve) => child.on('close', (code) => resolve({ code, said }))),
    };
  }) as [Rank, Rank];
}

/** Stops a rank once both have joined; returns how the other one ends. */
async function otherEnds(stopped: 0 | 1): Promise<{ code: number | null; said: string }> {
  const ranks = await startWorld();
  await Promise.all(ranks.map(({ isThere }) => isThere));
  ranks[stopped].child.kill('SIGSTOP');
  return (ranks[1 - stopped] as Rank).ended;
}

it('names a rank that is stopped, one whose store is stopped with it, and one whose JavaScript blocks', async () => {
  const blocking = startWorld({ BLOCKS: '1' });
  const [withoutOne, withoutZero, ...blocked] = await Promise.all([
    otherEnds(1),
    otherEnds(0),
    blocking.then(([zero]) => zero.ended),
    blocking.then(([, one]) => one.ended),
  ]);
  expect(withoutOne.code).toBe(1);
  expect(withoutOne.said).toMatch(
    /^attune: Rank 1 hangs: no sign of life for 4 s \(ATTUNE_DIST_HANG\).*All ranks end\.$/m,
  );
  expect(withoutZero.code).toBe(1);
  expect(withoutZero.said).toMatch(/^attune: Rank 0 hangs: its store has not answered for 4 s/m);
  for (const { code, said } of blocked) {
    expect(code).toBe(1);
    expect(said).toMatch(/^attune: Rank 1 hangs: JavaScript has been at one place for 4 s/m);
  }
});

it('names a rank that is killed inside a collective', async () => {
  const [zero, one] = await startWorld({ BEGINS: '1', ATTUNE_DIST_HANG: '60' });
  await Promise.all([zero.isThere, one.isThere]);
  one.child.kill('SIGKILL');
  await one.ended;
  zero.child.stdin?.write('go on\n');
  const { code, said } = await zero.ended;
  expect(code).toBe(1);
  expect(said).toMatch(
    /all_gather_into_tensor \(number \d+ of the group world\) failed on rank 0 of 2 .*Every rank had begun it, and there is no sign of life from rank 1: killed/,
  );
});
