/** One rank of world.test.ts: tries everything that a world offers and prints its observations as one line of JSON. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../random.ts';
import { aten, keep, randn, scope, seed as seedEngine, type Tensor, tensor, zeros } from '../tensor/index.ts';
import { Group } from './group.ts';
import { SharedStore } from './store.ts';
import { joinWorld, SharedWorld } from './world.ts';

const world = await joinWorld();
const { rank, size } = world;
const group = world.groupFor('cpu');
if (group === null) throw new Error('no group');
const seen: Record<string, unknown> = { rank, size };
const numbers = (values: Tensor) => Array.from(values.numbers());
const own = (...values: number[]) => keep(tensor(values));

const sum = own(rank + 1, 10 * (rank + 1));
await group.allReduce(sum);
seen.sum = numbers(sum);
const most = own(rank, -rank);
await group.allReduce(most, 'max');
seen.max = numbers(most);
const sent = own(rank, rank);
await group.broadcast(sent, size - 1);
seen.broadcast = numbers(sent);
const gathered = keep(zeros([2 * size]));
await group.allGather(gathered, own(rank, -rank));
seen.gathered = numbers(gathered);
const part = keep(zeros([2]));
await group.reduceScatter(part, keep(tensor(Array.from({ length: 2 * size }, (_, i) => i * (rank + 1)))));
seen.scattered = numbers(part);
const swapped = keep(zeros([size]));
await group.allToAll(swapped, keep(tensor(Array.from({ length: size }, (_, to) => 10 * rank + to))));
seen.swapped = numbers(swapped);
await group.barrier();

// Large sums, compared bit for bit with the ranks' numbers gathered and added from the first to the last.
seen.memory = group.sharesMemory;
const bits = (values: Tensor) => aten<Tensor>('view.dtype', values, 'int32');
async function sumsRight(given: Tensor): Promise<boolean> {
  const all = keep(zeros([size * given.numel]));
  await group?.allGather(all, given);
  await group?.allReduce(given);
  return scope(() => {
    const expected = all.narrow(0, 0, given.numel).clone();
    for (let from = 1; from < size; from++) expected.add_(all.narrow(0, from * given.numel, given.numel));
    return aten<boolean>('equal', bits(given), bits(expected));
  });
}
seedEngine(100 + rank);
const sparse = keep(zeros([3_000_001]));
sparse.narrow(0, 700_000 + 1000 * rank, 2000).copy_(randn([2000]));
sparse.narrow(0, 3_000_000, 1).fill_(rank + 1);
sparse.narrow(0, 40_000, 300).fill_(-0); // −0 on rank 0 only; the others have +0
if (rank > 0) sparse.narrow(0, 40_000, 300).zero_();
seen.large = {
  few: await sumsRight(keep(randn([16_391]))),
  more: await sumsRight(keep(randn([1_048_581]))),
  // More than a window of the shared memory.
  most: await sumsRight(keep(randn([5_000_003]))),
  sparse: await sumsRight(sparse),
  zero: await sumsRight(keep(zeros([2_000_000]))),
};
// Sums of many sizes back to back: none may touch what others still read of the one before.
const queued = Array.from({ length: 30 }, (_, i) => {
  const given = keep(zeros([i % 3 === 0 ? 4_300_000 : 20_000 + 30_011 * (i % 7)])).fill_((i + 1) * (rank + 1));
  return { given, ticket: group.start('all_reduce', given) };
});
seen.queued = queued.map(({ given, ticket }) => {
  group.join(ticket);
  const ends = scope(() => [given.min().item(), given.max().item()]);
  given.dispose();
  return ends;
});
seen.objects = await world.gather({ rank, text: 'é'.repeat(rank), bytes: new Uint8Array([rank]) });
seen.shared = await world.share(rank === 0 ? { from: 0 } : { from: -1 });
seen.any = [await world.any(false), await world.any(rank === size - 1)];

// Promises settle in another order on every rank; the places in the queue were taken in the same order.
const turns = Array.from({ length: 12 }, () => group.turn());
const random = new Random('order', rank);
const values = await Promise.all(
  turns.map(async (turn, i) => {
    await sleep(random.int(0, 30));
    const value = own(i * (rank + 1));
    await turn.allReduce(value);
    return numbers(value)[0];
  }),
);
seen.inOrder = values;

const order: number[] = [];
await world.firstThenRest('first', async () => void order.push(rank));
seen.first = order;

// Ranks work until all have arrived and one has nothing left to do: rank 0, which comes late.
let [pieces, worked] = [rank === 0 ? 2 : 100_000, 0];
if (rank === 0) await sleep(200);
await world.meet('work', () => {
  if (pieces-- === 0) return false;
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
  worked++;
  return true;
});
seen.worked = worked;
try {
  await group.allReduce(keep(zeros([2, 2]).transpose(0, 1).narrow(0, 0, 1).expand(3, 2)));
} catch (error) {
  seen.refused = (error as Error).message;
}

// A world over a file has the same calls; in it, the last rank stays away from a collective with a time limit. The
// limit also covers connecting, and how far apart the others may begin: it grows with the number of processes that
// share the cores.
const path = process.argv[2] as string;
const store = await SharedStore.file(path, size);
const filed = await SharedWorld.open(store, { rank, size, localSize: size, host: '127.0.0.1' }, { timeoutMs: 240_000 });
seen.filed = await filed.gather(rank);
const brief = await Group.make({
  store: store.id,
  backend: 'gloo',
  name: 'brief',
  rank,
  size,
  timeoutMs: 3000 * size,
  host: '127.0.0.1',
});
const ping = own(1);
await filed.meet('before the brief group');
await brief.allReduce(ping);
await filed.meet('before the one that fails');
const ticks: number[] = [];
const clock = setInterval(() => ticks.push(performance.now()), 20);
if (rank < size - 1) seen.missing = await brief.allReduce(ping).catch((error: Error) => error.message);
clearInterval(clock);
seen.ticks = ticks.length;
await world.meet('end of waiting');

// Waiting ranks notice a rank that gives up.
if (rank === size - 1) await world.fail(new Error('the disk is full'));
else seen.heard = await store.wait('never', { timeoutMs: 300, what: 'nothing' }).catch((error: Error) => error.message);
if (rank < size - 1) seen.aborted = await world.meet('never').catch((error: Error) => error.message);
console.log(JSON.stringify(seen));
process.exit(0);
