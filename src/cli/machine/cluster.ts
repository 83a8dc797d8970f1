/**
 * What `attune doctor --dist` measures of a world: who is there and with which versions, how fast sums over all ranks are, and
 * how long a barrier takes.
 */
import { hostname } from 'node:os';
import { joinWorld } from '../../dist/world.ts';
import { UserError } from '../../errors.ts';
import { cudaCount, engineInfo, keep, synchronize, threads, zeros } from '../../tensor/index.ts';

export interface RankFacts {
  rank: number;
  host: string;
  node: string;
  libtorch: string;
  device: string;
  threads: number;
}

export interface ClusterFacts {
  ranks: RankFacts[];
  /** Fields that are not the same on all ranks, and have to be. */
  unequal: string[];
  /** Bytes that are summed, seconds of the fastest of three, and the bandwidth that a ring would need for that. */
  allReduce: { bytes: number; seconds: number; gigabytesPerSecond: number }[];
  barrierMs: number;
}

const sizes = [1 << 20, 1 << 24, 1 << 26];

export async function examineCluster(): Promise<{ facts: ClusterFacts; isFirst: boolean }> {
  const world = await joinWorld();
  if (world.size === 1)
    throw new UserError(
      'attune doctor --dist is for several processes: attune launch --nproc 2 -- doctor --dist, or the same under torchrun or srun on every machine.',
    );
  const device = cudaCount() > 0 ? 'cuda' : 'cpu';
  const own: RankFacts = {
    rank: world.rank,
    host: hostname(),
    node: process.versions.node,
    libtorch: engineInfo().libtorch,
    device,
    threads: threads(),
  };
  const ranks = await world.gather(own);
  const unequal = (['node', 'libtorch', 'device'] as const).filter(
    (name) => new Set(ranks.map((each) => each[name])).size > 1,
  );
  const group = world.groupFor(device);
  const allReduce: ClusterFacts['allReduce'] = [];
  for (const bytes of sizes) {
    const values = keep(zeros([bytes / 4], { device }));
    let seconds = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 3; i++) {
      await group?.barrier();
      const begun = performance.now();
      await group?.allReduce(values);
      if (device === 'cuda') synchronize();
      seconds = Math.min(seconds, (performance.now() - begun) / 1000);
    }
    values.dispose();
    // A ring moves 2(n−1)/n of the bytes over each link.
    const moved = (2 * (world.size - 1) * bytes) / world.size;
    allReduce.push({ bytes, seconds, gigabytesPerSecond: moved / seconds / 1e9 });
  }
  const begun = performance.now();
  for (let i = 0; i < 20; i++) await group?.barrier();
  const barrierMs = (performance.now() - begun) / 20;
  return { facts: { ranks, unequal, allReduce, barrierMs }, isFirst: world.isFirst };
}

export function describeCluster({ ranks, unequal, allReduce, barrierMs }: ClusterFacts): string {
  const hosts = [...Map.groupBy(ranks, ({ host }) => host)];
  return [
    `Ranks       ${ranks.length} on ${hosts.length === 1 ? 'one machine' : `${hosts.length} machines`}`,
    ...hosts.map(([host, own]) => {
      const { libtorch, device, threads: count } = own[0] as RankFacts;
      return `  ${host}: rank ${own.map(({ rank }) => rank).join(', ')}; libtorch ${libtorch}, ${device}, threads ${count}`;
    }),
    ...unequal.map(
      (name) => `Attention: ${name} differs: ${ranks.map((each) => each[name as keyof RankFacts]).join(', ')}`,
    ),
    ...allReduce.map(
      ({ bytes, seconds, gigabytesPerSecond }) =>
        `All-reduce  ${bytes / 2 ** 20} MiB in ${(1000 * seconds).toFixed(1)} ms: ${gigabytesPerSecond.toFixed(2)} GB/s per rank`,
    ),
    `Barrier     ${barrierMs.toFixed(2)} ms`,
  ].join('\n');
}
