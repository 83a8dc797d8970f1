/**
 * The world: all processes of one training. Trainers ask it for what they need from the others and never handle rank
 * numbers. A world of one has neither store nor group, and returns what it was given.
 *
 *     const world = await joinWorld();
 *     const rows = await world.gather(mine);          // every rank's, on every rank
 *     if (world.isFirst) write(rows);
 */
import { deserialize, serialize } from 'node:v8';
import { UserError } from '../errors.ts';
import { native } from '../tensor/engine/native.ts';
import { type Device, keep, scope, type Tensor, tensor, zeros } from '../tensor/index.ts';
import { endedBy, WorldError } from './failure.ts';
import { Group } from './group.ts';
import { startWatching } from './heartbeat.ts';
import { leaveInOrder } from './leave.ts';
import { addressesOf } from './meeting.ts';
import { checkPlace, isStartedAgain, type Place, readPlace, seconds, startSeconds } from './place.ts';
import { checkDistributed, SharedStore, type WaitNotice } from './store.ts';
import { startNotice } from './waiting.ts';

export interface World {
  readonly rank: number;
  readonly size: number;
  /** Rank 0: it writes the run's folder and prints to the console. */
  readonly isFirst: boolean;
  /** Whether any rank says so. */
  any(flag: boolean): Promise<boolean>;
  /** Rank 0's value, on every rank; the others' values are ignored. */
  share<T>(value: T): Promise<T>;
  /** Every rank's value, in the order of ranks, on every rank. */
  gather<T>(value: T): Promise<T[]>;
  /**
   * Waits for every rank without a time limit: for places that ranks reach at very different times. If all ranks give
   * it `work` (which does a piece, and returns false when none was left), it works meanwhile, until all have arrived
   * and one of them has none left.
   */
  meet(name: string, work?: () => boolean): Promise<void>;
  /** Rank 0 runs it first, the others when it is done: for results cached on disk. */
  firstThenRest<T>(name: string, work: () => Promise<T>): Promise<T>;
  /** The group for tensors on a device; null in a world of one. */
  groupFor(device: Device): Group | null;
  /** Tells the others that this rank gives up. */
  fail(error: Error): Promise<void>;
}

export const soloWorld: World = {
  rank: 0,
  size: 1,
  isFirst: true,
  any: async (flag) => flag,
  share: async (value) => value,
  gather: async (value) => [value],
  meet: async (_, work) => {
    while (work?.());
  },
  firstThenRest: (_, work) => work(),
  groupFor: () => null,
  fail: async () => {},
};

let joined: Promise<World> | undefined;

/** The world that this process was started in; joined once. */
export function joinWorld(env: Readonly<Record<string, string | undefined>> = process.env): Promise<World> {
  joined ??= open(env);
  return joined;
}

async function open(env: Readonly<Record<string, string | undefined>>): Promise<World> {
  checkPlace(env);
  const place = readPlace(env);
  if (place === undefined) return soloWorld;
  checkDistributed();
  const timeoutMs = 1000 * seconds(env, 'ATTUNE_DIST_TIMEOUT', 600);
  const startMs = startSeconds(env) * 1000;
  const hangSeconds = seconds(env, 'ATTUNE_DIST_HANG', 8, 0);
  await addressesOf(place.host, { patienceMs: place.startedBy === 'kubernetes' ? startMs : 0 });
  const waiting = startNotice(place, startMs);
  const store = await SharedStore.tcp(place, startMs, { onWait: waiting, isAgain: isStartedAgain(env) });
  const world = await SharedWorld.open(store, place, { timeoutMs, startMs, onWait: waiting });
  waiting.over();
  startWatching(place, hangSeconds, env);
  leaveInOrder(store, place, { patience: Math.min(30, timeoutMs / 1000), hasFailed: () => world.hasFailed });
  return world;
}

/** A rank may wait a day for the slowest rollouts. */
const patienceMs = 24 * 3600 * 1000;

export class SharedWorld implements World {
  readonly rank: number;
  readonly size: number;
  readonly #store: SharedStore;
  /** Gloo, for objects and for tensors on CPUs. */
  readonly #control: Group;
  readonly #nccl: Group | null;
  #meetings = 0;
  /** Whether this rank has given up. */
  hasFailed = false;

  private constructor(
    store: SharedStore,
    { rank, size }: Pick<Place, 'rank' | 'size'>,
    control: Group,
    nccl: Group | null,
  ) {
    this.rank = rank;
    this.size = size;
    this.#store = store;
    this.#control = control;
    this.#nccl = nccl;
  }

  static async open(
    store: SharedStore,
    place: Pick<Place, 'rank' | 'size' | 'localSize' | 'host'>,
    { timeoutMs, startMs = timeoutMs, onWait }: { timeoutMs: number; startMs?: number; onWait?: WaitNotice },
  ): Promise<SharedWorld> {
    const { rank, size, localSize } = place;
    // Groups connect pairwise and wait for each other inside c10d, so all ranks must be known to be there first.
    const what = 'all ranks to start (ATTUNE_DIST_START)';
    await store.barrier('start', rank, size, { timeoutMs: startMs, onWait, what });
    const explain = (error: Error) => reasonOf(store, error);
    const host = localSize === size && isLoopback(place.host) ? '127.0.0.1' : undefined;
    const oneMachine = localSize === size && process.env.ATTUNE_DIST_MEMORY !== '0';
    const shared = { store: store.id, rank, size, timeoutMs, host, oneMachine, explain };
    const control = await Group.make({ ...shared, backend: 'gloo', name: 'world' });
    // NCCL needs a GPU for each rank.
    const useNccl =
      native.distInfo().nccl && native.cudaCount() > 0 && (process.env.ATTUNE_DIST_BACKEND ?? 'nccl') === 'nccl';
    const nccl = useNccl ? await Group.make({ ...shared, backend: 'nccl', name: 'world-nccl' }) : null;
    return new SharedWorld(store, place, control, nccl);
  }

  get isFirst(): boolean {
    return this.rank === 0;
  }

  async any(flag: boolean): Promise<boolean> {
    const flags = keep(tensor([Number(flag)], { dtype: 'int32' }));
    await this.#control.allReduce(flags, 'max');
    return take(flags)[0] === 1;
  }

  async share<T>(value: T): Promise<T> {
    const [sizeTurn, contentTurn] = [this.#control.turn(), this.#control.turn()];
    const bytes = this.isFirst ? Uint8Array.from(serialize(value)) : new Uint8Array();
    const size = keep(tensor([bytes.length], { dtype: 'int64' }));
    await sizeTurn.broadcast(size);
    const length = Number(take(size)[0]);
    const content = keep(this.isFirst ? tensor(bytes) : zeros([length], { dtype: 'uint8' }));
    await contentTurn.broadcast(content);
    return deserialize(takeBytes(content)) as T;
  }

  async gather<T>(value: T): Promise<T[]> {
    const [lengthsTurn, contentTurn] = [this.#control.turn(), this.#control.turn()];
    const bytes = Uint8Array.from(serialize(value));
    const own = keep(tensor([bytes.length], { dtype: 'int64' }));
    const lengths = keep(zeros([this.size], { dtype: 'int64' }));
    await lengthsTurn.allGather(lengths, own);
    own.dispose();
    const sizes = take(lengths).map(Number);
    const longest = Math.max(...sizes);
    const padded = new Uint8Array(longest);
    padded.set(bytes);
    const input = keep(tensor(padded));
    const output = keep(zeros([this.size * longest], { dtype: 'uint8' }));
    await contentTurn.allGather(output, input);
    input.dispose();
    const all = takeBytes(output);
    return sizes.map((length, rank) => deserialize(all.subarray(rank * longest, rank * longest + length)) as T);
  }

  meet(name: string, work?: () => boolean): Promise<void> {
    return this.#store.barrier(`${this.#meetings++} ${name}`, this.rank, this.size, { timeoutMs: patienceMs, work });
  }

  async firstThenRest<T>(name: string, work: () => Promise<T>): Promise<T> {
    if (!this.isFirst) await this.meet(name);
    const result = await work();
    if (this.isFirst) await this.meet(name);
    return result;
  }

  groupFor(device: Device): Group {
    return device.startsWith('cuda') && this.#nccl !== null ? this.#nccl : this.#control;
  }

  async fail(error: Error): Promise<void> {
    this.hasFailed = true;
    // If the store is gone, so is its owner: nobody is left to tell.
    const farewell = { rank: this.rank, reason: error.message, isMistake: error instanceof UserError };
    await this.#store.abort(farewell).catch(() => {});
  }
}

/** A rank that gave up has said why; a lost connection is only what the others see of it. */
async function reasonOf(store: SharedStore, error: Error): Promise<Error> {
  const aborted = await store.aborted().catch(() => undefined);
  return aborted === undefined ? new WorldError(error.message) : endedBy(aborted);
}

const isLoopback = (host: string) => host === 'localhost' || host.startsWith('127.');

function take(values: Tensor): number[] {
  const numbers = scope(() => values.numbers());
  values.dispose();
  return numbers;
}

function takeBytes(values: Tensor): Uint8Array {
  const bytes = values.data() as Uint8Array;
  values.dispose();
  return bytes;
}
