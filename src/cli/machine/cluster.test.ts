import { expect, it } from 'vitest';
import { type ClusterFacts, describeCluster, unequalIn } from './cluster.ts';

const rank = (number: number): ClusterFacts['ranks'][number] => ({
  ...{ rank: number, host: 'box', node: '24.0.0', libtorch: '2.13.0', device: 'cpu', threads: 1 },
});
const timing = (gigabytesPerSecond: number) => ({ bytes: 2 ** 26, seconds: 0.04, gigabytesPerSecond });

it('names versions that differ, and nothing that may', () => {
  const ranks = [rank(0), { ...rank(1), host: 'other', threads: 4 }];
  expect(unequalIn(ranks)).toEqual([]);
  const mixed = [rank(0), { ...rank(1), libtorch: '1.13.0' }];
  expect(unequalIn(mixed)).toEqual(['libtorch']);
  const speeds = { allReduce: [timing(1)], reduceScatter: timing(1), allGather: timing(1), barrierMs: 1 };
  expect(describeCluster({ ranks: mixed, unequal: unequalIn(mixed), ...speeds })).toContain(
    'Attention: libtorch differs: 2.13.0, 1.13.0',
  );
});

it('says who is there, how fast each collective is, and what a step would exchange', () => {
  const facts: ClusterFacts = {
    ...{ ranks: [rank(0), rank(1)], unequal: [], barrierMs: 0.2 },
    ...{ allReduce: [timing(1.6)], reduceScatter: timing(0.8), allGather: timing(0.5) },
  };
  expect(describeCluster(facts).split('\n')).toEqual([
    'Ranks           2 on one machine',
    '  box: rank 0, 1; libtorch 2.13.0, cpu, threads 1',
    'All-reduce      64 MiB in 40.0 ms: 1.60 GB/s per rank',
    'Reduce-scatter  64 MiB in 40.0 ms: 0.80 GB/s per rank',
    'All-gather      64 MiB in 40.0 ms: 0.50 GB/s per rank',
    'Barrier         0.20 ms',
    // 4 GB at 1.6 GB/s; 2 at 0.8 and 1 at 0.5; 2 at 0.8 and 2 at 0.5.
    'A step          of 1B trained parameters exchanges for --shard none 2.5 s, --shard optimizer 4.5 s, --shard full 6.5 s, where nothing is hidden behind computing',
  ]);
});
