import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { spawnRanks } from '../../tests/dist/spawn.ts';
import { settledTensors } from '../../tests/support/settled-tensors.ts';
import { liveTensors } from '../tensor/index.ts';
import { freePort } from './meeting.ts';
import { joinWorld, soloWorld } from './world.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-world-'));
afterAll(() => rmSync(folder, { recursive: true }));
const script = join(import.meta.dirname, 'world.test-support.ts');

it.each([
  [2, true],
  [4, true],
  [2, false],
])(
  '%i ranks, memory shared: %s: every collective, objects, order, time limits',
  async (size, memory) => {
    const more = { ATTUNE_DIST_MEMORY: memory ? '1' : '0' };
    const texts = await spawnRanks(size, [script, join(folder, `store-${size}-${memory}`)], more);
    const ranks = Array.from({ length: size }, (_, rank) => rank);
    const total = (of: (rank: number) => number) => ranks.reduce((sum, rank) => sum + of(rank), 0);
    for (const [rank, text] of texts.entries()) {
      const seen = JSON.parse(text) as Record<string, unknown>;
      expect(seen).toMatchObject({ rank, size });
      expect(seen.sum).toEqual([total((r) => r + 1), 10 * total((r) => r + 1)]);
      expect(seen.max).toEqual([size - 1, 0]);
      expect(seen.broadcast).toEqual([size - 1, size - 1]);
      expect(seen.gathered).toEqual(ranks.flatMap((r) => [r, 0 - r]));
      expect(seen.scattered).toEqual([2 * rank, 2 * rank + 1].map((i) => i * total((r) => r + 1)));
      expect(seen.swapped).toEqual(ranks.map((from) => 10 * from + rank));
      expect(seen.memory).toBe(memory);
      expect(seen.large).toEqual({ few: true, more: true, most: true, sparse: true, zero: true });
      const sums = Array.from({ length: 30 }, (_, i) => (i + 1) * total((r) => r + 1));
      expect(seen.queued).toEqual(sums.map((each) => [each, each]));
      expect(seen.objects).toEqual(ranks.map((r) => ({ rank: r, text: 'é'.repeat(r), bytes: { 0: r } })));
      expect(seen.shared).toEqual({ from: 0 });
      expect(seen.any).toEqual([false, true]);
      expect(seen.inOrder).toEqual(Array.from({ length: 12 }, (_, i) => i * total((r) => r + 1)));
      expect(seen.first).toEqual([rank]);
      if (rank === 0) expect(seen.worked).toBe(2);
      else expect(seen.worked).toBeLessThan(100_000);
      expect(seen.refused).toMatch(/all_reduce: takes contiguous tensors/);
      expect(seen.filed).toEqual(ranks);
      if (rank === size - 1) continue;
      expect(seen.missing).toMatch(
        new RegExp(`all_reduce \\(number 2 of the group brief\\) failed on rank ${rank} of ${size} after .* s: .*`),
      );
      expect(seen.missing).toContain(`Missing: rank ${size - 1} (it last began number 1, all_reduce).`);
      // The event loop went on while the collective waited.
      expect(seen.ticks).toBeGreaterThan(5);
      expect(seen.heard).toContain('Waited 0.3 s for nothing');
      expect(seen.aborted).toContain(`Rank ${size - 1} has ended the run: the disk is full`);
    }
  },
  600_000,
);

it('does not mix two launches that meet at one address', async () => {
  const port = await freePort();
  const texts = await Promise.all(
    ['a', 'b'].map((runId, rank) =>
      spawnRanks(1, ['-e', connect], {
        RANK: String(rank),
        WORLD_SIZE: '2',
        MASTER_PORT: String(port),
        TORCHELASTIC_RUN_ID: runId,
        REFUSED: join(folder, 'refused'),
      }),
    ),
  );
  expect(texts[1]?.[0]).toContain('belongs to another launch (a, and this is b)');
}, 600_000);

/** Rank 0 serves its store until rank 1 has been refused. */
const connect = `
import { existsSync, writeFileSync } from 'node:fs';
const { SharedStore } = await import(${JSON.stringify(join(import.meta.dirname, 'store.ts'))});
const { readPlace } = await import(${JSON.stringify(join(import.meta.dirname, 'place.ts'))});
const place = readPlace(process.env);
const wasRefused = () => existsSync(process.env.REFUSED);
try {
  await SharedStore.tcp(place, 300_000);
  while (place.rank === 0 && !wasRefused()) await new Promise((done) => setTimeout(done, 20));
} catch (error) {
  console.log(error.message);
}
if (place.rank === 1) writeFileSync(process.env.REFUSED, '');
process.exit(0);
`;

it('a world of one answers with what it was given and makes nothing', async () => {
  const before = await settledTensors();
  const world = await joinWorld({});
  expect(world).toBe(soloWorld);
  const value = { some: 'thing' };
  expect(await world.share(value)).toBe(value);
  expect((await world.gather(value))[0]).toBe(value);
  expect(await world.any(true)).toBe(true);
  expect(world.groupFor('cpu')).toBeNull();
  await world.meet('nobody');
  expect(liveTensors()).toBe(before);
});
