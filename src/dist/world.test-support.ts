/** One rank of world.test.ts: tries everything that a world offers and prints what it saw as one line of JSON. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../random.ts';
import { keep, type Tensor, tensor, zeros } from '../tensor/index.ts';
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
seen.objects = await world.gather({ rank, text: 'é'.repeat(rank), bytes: new Uint8Array([rank]) });
seen.shared = await world.share(rank === 0 ? { from: 0 } : { from: -1 });
seen.any = [await world.any(false), await world.any(rank === size - 1)];

// Promises settle in another order on every rank; the places in the queue were taken in the same one.
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
try {
  await group.allReduce(keep(zeros([2, 2]).transpose(0, 1).narrow(0, 0, 1).expand(3, 2)));
} catch (error) {
  seen.refused = (error as Error).message;
}

// A world over a file has the same calls; in it, the last rank stays away from a collective of two seconds.
const path = process.argv[2] as string;
const store = await SharedStore.file(path, size);
const filed = await SharedWorld.open(store, { rank, size, localSize: size, host: '127.0.0.1' }, { timeoutMs: 20_000 });
seen.filed = await filed.gather(rank);
const brief = await Group.make({
  store: store.id,
  backend: 'gloo',
  name: 'brief',
  rank,
  size,
  timeoutMs: 2000,
  host: '127.0.0.1',
});
const ping = own(1);
await filed.meet('before the brief group');
await brief.allReduce(ping);
const ticks: number[] = [];
const clock = setInterval(() => ticks.push(performance.now()), 20);
if (rank < size - 1) seen.missing = await brief.allReduce(ping).catch((error: Error) => error.message);
clearInterval(clock);
seen.ticks = ticks.length;
await world.meet('end of waiting');

// A rank that gives up is heard by whoever waits.
if (rank === size - 1) await world.fail(new Error('the disk is full'));
else seen.heard = await store.wait('never', { timeoutMs: 300, what: 'nothing' }).catch((error: Error) => error.message);
if (rank < size - 1) seen.aborted = await world.meet('never').catch((error: Error) => error.message);
console.log(JSON.stringify(seen));
process.exit(0);
