/**
 * What `attune doctor --dist` measures of a world: who is there and with which versions, how fast sums over all ranks are (of
 * `--shard none`) and the two collectives of `--shard optimizer` and `full`, and how long a barrier takes.
 */
import { hostname } from 'node:os';
import { exchangedBytes, exchangeSeconds } from '../../dist/shard/cost.ts';
import { shardKinds } from '../../dist/shard/optimizer.ts';
import { joinWorld } from '../../dist/world.ts';
import { UserError } from '../../errors.ts';
import { cudaCount, engineInfo, keep, synchronize, type Tensor, threads, zeros } from '../../tensor/index.ts';

export interface RankFacts {
  rank: number;
  host: string;
  node: string;
  libtorch: string;
  device: string;
  threads: number;
}

/** Bytes of the whole tensor, seconds of the fastest of three, and the bytes that each rank has to send over that time. */
export interface Timing {
  bytes: number;
  seconds: number;
  gigabytesPerSecond: number;
}

export interface ClusterFacts {
  ranks: RankFacts[];
  /** Fields that are not the same on all ranks, and have to be. */
  unequal: string[];
  allReduce: Timing[];
  reduceScatter: Timing;
  allGather: Timing;
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
  const unequal = unequalIn(ranks);
  const group = world.groupFor(device);
  // A ring moves (n−1)/n of the bytes over each link for a reduce-scatter or an all-gather, and twice that for a sum.
  const timed = async (bytes: number, rounds: number, collective: (whole: Tensor, part: Tensor) => Promise<void>) => {
    const length = Math.ceil(bytes / 4 / world.size) * world.size;
    const [whole, part] = [keep(zeros([length], { device })), keep(zeros([length / world.size], { device }))];
    // Zeros are not moved on CPUs.
    whole.fill_(1);
    part.fill_(1);
    let seconds = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 3; i++) {
      await group?.barrier();
      const begun = performance.now();
      await collective(whole, part);
      if (device === 'cuda') synchronize();
      seconds = Math.min(seconds, (performance.now() - begun) / 1000);
    }
    whole.dispose();
    part.dispose();
    return { bytes, seconds, gigabytesPerSecond: (rounds * (world.size - 1) * bytes) / world.size / seconds / 1e9 };
  };
  const allReduce: Timing[] = [];
  for (const bytes of sizes) allReduce.push(await timed(bytes, 2, async (whole) => group?.allReduce(whole)));
  const largest = sizes.at(-1) as number;
  const reduceScatter = await timed(largest, 1, async (whole, part) => group?.reduceScatter(part, whole));
  const allGather = await timed(largest, 1, async (whole, part) => group?.allGather(whole, part));
  const begun = performance.now();
  for (let i = 0; i < 20; i++) await group?.barrier();
  const barrierMs = (performance.now() - begun) / 20;
  return { facts: { ranks, unequal, allReduce, reduceScatter, allGather, barrierMs }, isFirst: world.isFirst };
}

/** What differs between ranks, and has to be the same. */
export function unequalIn(ranks: readonly RankFacts[]): string[] {
  const names = ['node', 'libtorch', 'device'] as const;
  return names.filter((name) => new Set(ranks.map((each) => each[name])).size > 1);
}

const timingLine = (name: string, { bytes, seconds, gigabytesPerSecond }: Timing) =>
  `${name.padEnd(16)}${bytes / 2 ** 20} MiB in ${(1000 * seconds).toFixed(1)} ms: ${gigabytesPerSecond.toFixed(2)} GB/s per rank`;

/** What the cost model makes of the bandwidths. */
function predictedLine({ ranks, allReduce, reduceScatter, allGather }: ClusterFacts): string {
  const rate = ({ gigabytesPerSecond }: Timing) => 1e9 * gigabytesPerSecond;
  const rates = {
    allReduce: rate(allReduce.at(-1) as Timing),
    reduceScatter: rate(reduceScatter),
    allGather: rate(allGather),
  };
  const each = shardKinds.map((shard) => {
    const seconds = exchangeSeconds(exchangedBytes(shard, 1e9, ranks.length), rates);
    return `--shard ${shard} ${seconds < 10 ? seconds.toPrecision(2) : Math.round(seconds)} s`;
  });
  return `of 1B trained parameters exchanges for ${each.join(', ')}, where nothing is hidden behind computing`;
}

export function describeCluster(facts: ClusterFacts): string {
  const { ranks, unequal, allReduce, reduceScatter, allGather, barrierMs } = facts;
  const hosts = [...Map.groupBy(ranks, ({ host }) => host)];
  return [
    `Ranks           ${ranks.length} on ${hosts.length === 1 ? 'one machine' : `${hosts.length} machines`}`,
    ...hosts.map(([host, own]) => {
      const { libtorch, device, threads: count } = own[0] as RankFacts;
      return `  ${host}: rank ${own.map(({ rank }) => rank).join(', ')}; libtorch ${libtorch}, ${device}, threads ${count}`;
    }),
    ...unequal.map(
      (name) => `Attention: ${name} differs: ${ranks.map((each) => each[name as keyof RankFacts]).join(', ')}`,
    ),
    ...allReduce.map((timing) => timingLine('All-reduce', timing)),
    timingLine('Reduce-scatter', reduceScatter),
    timingLine('All-gather', allGather),
    `Barrier         ${barrierMs.toFixed(2)} ms`,
    `A step          ${predictedLine(facts)}`,
  ].join('\n');
}
