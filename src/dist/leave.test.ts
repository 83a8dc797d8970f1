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

/** The last rank comes to the meeting, then does not ask for a while whether all have; rank 0 comes last and ends at once. */
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

/** Rank 1 does nothing that needs anybody; rank 0's limit is a second. */
const stays = `${begin}
const begun = performance.now();
process.on('exit', () => console.log(Math.round(performance.now() - begun)));
if (world.rank === 0) process.exit(0);
else await sleep(6000);
`;

it.each([
  ['a program that ends with a meeting', slowToAsk, {}],
  ['one that ends by process.exit', `${slowToAsk}process.exit(0);`, {}],
  ['ranks that watch one another', slowToAsk, { ATTUNE_DIST_HANG: '30' }],
])('is still there for a rank that is slow to ask: %s', async (name, program, more) => {
  const texts = await spawnRanks(2, ['-e', program], { FLAG: join(folder, name), ...more });
  expect(texts).toEqual(['met\n', 'met\n']);
});

it('does not wait for ever', async () => {
  const [first, second] = (await spawnRanks(2, ['-e', stays], { ATTUNE_DIST_TIMEOUT: '1' })).map(Number);
  expect(first).toBeGreaterThan(900);
  expect(first).toBeLessThan(second as number);
});
