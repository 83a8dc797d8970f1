/** Rank 0 serves the store: it leaves last, whatever its program's last line is. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { spawnRanks } from '../../tests/dist/spawn.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-leave-'));
afterAll(() => rmSync(folder, { recursive: true }));

const begin = `
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { joinWorld } from ${JSON.stringify(join(import.meta.dirname, 'world.ts'))};
const block = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
const world = await joinWorld();
const flag = process.env.FLAG;
const until = async (there) => { while (!there()) await sleep(10); };
`;

/**
 * The last rank comes to the meeting but delays asking whether all have arrived; rank 0 comes last and ends at once.
 */
const slowToAsk = `${begin}
if (world.rank === world.size - 1) {
  const met = world.meet('the end');
  await sleep(300);
  writeFileSync(flag, '');
  block(1500);
  await met;
} else {
  await until(() => existsSync(flag));
  await world.meet('the end');
}
console.log('met');
`;

/** Rank 1 stays until rank 0, whose limit is four seconds, has left. */
const stays = `${begin}
const begun = performance.now();
if (world.rank === 0) {
  process.on('exit', () => {
    console.log(Math.round(performance.now() - begun));
    writeFileSync(flag, '');
  });
  process.exit(0);
}
await until(() => existsSync(flag));
`;

it.concurrent.each([
  ['a program that ends with a meeting', slowToAsk, {}],
  ['one that ends by process.exit', `${slowToAsk}process.exit(0);`, {}],
  ['ranks that watch one another', slowToAsk, { ATTUNE_DIST_HANG: '30' }],
])('is still there for a rank that is slow to ask: %s', async (name, program, more) => {
  const texts = await spawnRanks(2, ['-e', program], { FLAG: join(folder, name), ...more });
  expect(texts).toEqual(['met\n', 'met\n']);
});

it.concurrent('does not wait for ever', async () => {
  const more = { ATTUNE_DIST_TIMEOUT: '4', FLAG: join(folder, 'left') };
  const [first] = (await spawnRanks(2, ['-e', stays], more)).map(Number);
  expect(first).toBeGreaterThan(3900);
});
