/**
 * Ranks that do not fit together, or lose one another, say so and end; torchrun's own store serves as well as rank 0's.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { spawnRanks } from '../../tests/dist/spawn.ts';
import { freePort } from './meeting.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-place-'));
afterAll(() => rmSync(folder, { recursive: true }));

const file = (name: string) => JSON.stringify(join(import.meta.dirname, name));

/** Prints the result of joining; a rank stays until the others have printed theirs. */
const joins = `
import { readdirSync, writeFileSync } from 'node:fs';
import { joinWorld } from ${file('world.ts')};
if (process.env.COMES) writeFileSync(process.env.COMES, '');
try {
  const world = await joinWorld();
  console.log((await world.gather(world.rank)).join());
} catch (error) {
  console.log(error.message);
}
writeFileSync(process.env.SPOKEN + '/' + process.pid, '');
while (readdirSync(process.env.SPOKEN).length < Number(process.env.PROCESSES)) await new Promise((done) => setTimeout(done, 20));
process.exit(0);
`;

async function joined(ranks: readonly { rank: number; size: number }[], more: Record<string, string> = {}) {
  const port = String(await freePort());
  const spoken = mkdtempSync(join(folder, 'spoken-'));
  const texts = ranks.map(({ rank, size }) =>
    spawnRanks(1, ['-e', joins], {
      ...{ RANK: `${rank}`, WORLD_SIZE: `${size}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${size}` },
      ...{ MASTER_PORT: port, TORCHELASTIC_RUN_ID: port, SPOKEN: spoken, PROCESSES: `${ranks.length}` },
      ATTUNE_DIST_START: '120',
      ...more,
    }),
  );
  return (await Promise.all(texts)).map(([text]) => text as string);
}

it.concurrent('names ranks that were started for worlds of different sizes', async () => {
  const texts = await joined([
    { rank: 0, size: 2 },
    { rank: 1, size: 3 },
  ]);
  for (const text of texts)
    expect(text).toContain('rank 1 was started as one of 3 processes and rank 0 as one of 2: WORLD_SIZE must be');
});

it.concurrent('names a rank that was started twice', async () => {
  const texts = await joined([
    { rank: 0, size: 3 },
    { rank: 1, size: 3 },
    { rank: 1, size: 3 },
  ]);
  for (const text of texts) expect(text).toContain('two processes were started as rank 1: each needs a RANK');
});

/** Rank 1 of an attempt dies. Rank 0 gives up but serves its store for a moment longer, as one that cleans up does. */
const dies = `
import { existsSync } from 'node:fs';
import { joinWorld } from ${file('world.ts')};
const world = await joinWorld();
process.on('exit', () => { process.exitCode = 0; });
if (world.rank === 1) process.kill(process.pid, 'SIGKILL');
await world.fail(new Error('rank 1 is gone'));
while (!existsSync(process.env.COMES)) await new Promise((done) => setTimeout(done, 20));
await new Promise((done) => setTimeout(done, 4000)); // on a busy machine the next rank asks this store for a second
process.exit(1);
`;

it.concurrent('a rank that was started again does not take the store of the attempt before for its own', async () => {
  const port = String(await freePort());
  const spoken = mkdtempSync(join(folder, 'spoken-'));
  const rank = (program: string, number: number, more: Record<string, string>) =>
    spawnRanks(1, ['-e', program], {
      ...{ RANK: `${number}`, WORLD_SIZE: '2', LOCAL_RANK: `${number}`, LOCAL_WORLD_SIZE: '2', MASTER_PORT: port },
      ...{ TORCHELASTIC_RUN_ID: port, SPOKEN: spoken, PROCESSES: '2', ATTUNE_DIST_START: '60' },
      COMES: join(folder, 'comes'),
      ...more,
    });
  const before = [rank(dies, 0, {}), rank(dies, 1, {}).catch(() => [])];
  await before[1];
  const again = rank(joins, 1, { ATTUNE_ATTEMPT: '1' });
  await before[0];
  const texts = await Promise.all([rank(joins, 0, { ATTUNE_ATTEMPT: '1' }), again]);
  expect(texts.flat()).toEqual(['0,1\n', '0,1\n']);
}, 120_000);

/** torchrun's agent: a process that is not a rank and serves the store. */
const agent = `
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { native } from ${JSON.stringify(join(import.meta.dirname, '../tensor/engine/native.ts'))};
await native.storeTcp('127.0.0.1', Number(process.env.MASTER_PORT), true, 60_000, '');
while (readdirSync(process.env.SPOKEN).length < 2) await new Promise((done) => setTimeout(done, 20));
process.exit(0);
`;

it.concurrent('joins by the store of an agent', async () => {
  const port = String(await freePort());
  const spoken = mkdtempSync(join(folder, 'spoken-'));
  const [, ...texts] = await Promise.all([
    spawnRanks(1, ['-e', agent], { MASTER_PORT: port, SPOKEN: spoken }),
    ...[0, 1].map((rank) =>
      spawnRanks(1, ['-e', joins], {
        ...{ RANK: `${rank}`, WORLD_SIZE: '2', LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: '2', MASTER_PORT: port },
        ...{ TORCHELASTIC_RUN_ID: 'a', TORCHELASTIC_USE_AGENT_STORE: 'True', SPOKEN: spoken, PROCESSES: '2' },
        ATTUNE_DIST_START: '60',
      }),
    ),
  ]);
  expect(texts.flat()).toEqual(['0,1\n', '0,1\n']);
});

/** Rank 1 throws an uncaught error. */
const throws = `
import { joinWorld } from ${file('world.ts')};
const world = await joinWorld();
process.on('exit', () => { process.exitCode = 0; });
if (world.rank === 1) process.exit(1);
try {
  await world.meet('end');
} catch (error) {
  console.log(error.message);
}
`;

it.concurrent('does not wait at a meeting for a rank that has ended', async () => {
  const [first] = await spawnRanks(2, ['-e', throws]);
  expect(first).toContain('a process has ended without coming there. Missing: rank 1.');
});
