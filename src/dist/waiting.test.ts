import { afterEach, expect, it } from 'vitest';
import type { Place } from './place.ts';
import { onWaiting, startNotice } from './waiting.ts';

let said: string[] = [];
onWaiting((line) => said.push(line));
afterEach(() => {
  said = [];
});

const place = (rank: number, localRank: number): Place => ({
  ...{ rank, size: 6, localRank, localSize: 2, host: 'node0', port: 1234, runId: 'x' },
  ...{ hasStore: false, prefix: '', startedBy: 'slurm' },
});

it('says whom rank 0 waits for, where no launcher does', () => {
  startNotice(place(0, 0), 300_000).tell([1, 4, 5]);
  expect(said).toEqual([
    'Rank 0 waits for ranks 1, 4 and 5 of 6 to come to node0:1234, for up to 300 s (ATTUNE_DIST_START).',
  ]);
});

it('says once per machine that rank 0 does not answer, and leaves the rest to rank 0', () => {
  startNotice(place(2, 0), 60_000).tell([0]);
  startNotice(place(3, 1), 60_000).tell([0]);
  startNotice(place(2, 0), 60_000).tell([4]);
  expect(said).toEqual([
    'Rank 2 waits for rank 0, which does not answer at node0:1234 yet, for up to 60 s (ATTUNE_DIST_START).',
  ]);
});

it('speaks before a short limit', () => {
  expect(startNotice(place(0, 0), 300_000).afterMs).toBe(5000);
  expect(startNotice(place(0, 0), 3000).afterMs).toBe(1000);
});
