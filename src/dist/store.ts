/**
 * The store that all ranks share: small texts by key, on rank 0's machine (TCPStore) or in a file (FileStore). Waiting
 * means asking again, so that a waiting rank notices when another has given up.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { AttuneError, UserError } from '../errors.ts';
import { native } from '../tensor/engine/native.ts';
import { endedBy, type Farewell, WorldError } from './failure.ts';
import { checkPort, portInUse } from './meeting.ts';
import type { Place } from './place.ts';

/** Where a failing rank leaves its reason. */
const abortKey = 'attune/abort';
const runKey = 'attune/run';
const sizeKey = 'attune/size';
const rankKey = (rank: number) => `attune/rank/${rank}`;
/** How many processes of the world have ended. */
export const leftKey = 'attune/left';

/** Reports once which ranks are waited for, if they have not arrived within this time. */
export interface WaitNotice {
  afterMs: number;
  tell: (ranks: number[]) => void;
}

export interface BarrierOptions {
  timeoutMs: number;
  /** Done piece by piece while others are waited for; false when nothing is left. */
  work?: () => boolean;
  onWait?: WaitNotice;
  /** What is waited for, in words; by default the barrier's name and the rank. */
  what?: string;
}

export class SharedStore {
  readonly id: number;

  constructor(id: number) {
    this.id = id;
  }

  /**
   * Connects to the store of rank 0, which serves it. A restarted rank (`isAgain`) may come while the previous
   * attempt's store is still served: it waits for the next one. Attempts cannot be distinguished by a number, since
   * machines count their own.
   */
  static async tcp(
    place: Place,
    timeoutMs: number,
    { onWait, isAgain = false }: { onWait?: WaitNotice; isAgain?: boolean } = {},
  ): Promise<SharedStore> {
    const { rank, hasStore } = place;
    const mayBePast = isAgain && rank !== 0 && !hasStore;
    let ended: Farewell | undefined;
    for (;;) {
      const store = await SharedStore.#connect(place, timeoutMs, onWait).catch((error: Error) => {
        throw ended === undefined ? error : endedBy(ended);
      });
      const past = mayBePast ? await store.#past(place, timeoutMs) : undefined;
      if (past === undefined) {
        await store.#checkPlace(place, timeoutMs);
        return store;
      }
      ended = past.farewell;
      await portLeft(place, timeoutMs);
    }
  }

  static async #connect(place: Place, timeoutMs: number, onWait?: WaitNotice): Promise<SharedStore> {
    const { host, port, rank, hasStore, prefix } = place;
    const isServer = rank === 0 && !hasStore;
    if (isServer) checkPort(port);
    const notice = setTimeout(() => onWait?.tell([0]), onWait?.afterMs);
    const id = await native
      .storeTcp(host, port, isServer, timeoutMs, prefix)
      .catch((error: Error) => {
        throw unreachable(error, { host, port, rank, isServer, timeoutMs });
      })
      .finally(() => clearTimeout(notice));
    return new SharedStore(id);
  }

  /**
   * If this is the store of a failed attempt, or one that already has this rank, waits until it is gone, and returns
   * why it failed if known. Undefined if it is the store to join.
   */
  async #past({ host, port, rank }: Place, timeoutMs: number): Promise<{ farewell: Farewell | undefined } | undefined> {
    let farewell: Farewell | undefined;
    try {
      farewell = await this.aborted();
      if (farewell === undefined && (await this.get(rankKey(rank))) === undefined) return undefined;
      // A connection of our own ends with the store. If it is still answered after the connection was made, it is the
      // store's.
      const connection = connect(port, host);
      try {
        await once(connection, 'connect');
        farewell = (await this.aborted()) ?? farewell;
        await this.#leave();
        connection.resume();
        await once(connection, 'close', { signal: AbortSignal.timeout(timeoutMs) });
      } finally {
        connection.destroy();
      }
      return { farewell };
    } catch (error) {
      // Rank 0 has ended, and its store with it; or it does not end.
      await this.#leave();
      if ((error as Error).name !== 'AbortError') return { farewell };
      throw farewell === undefined
        ? new WorldError(
            `The store at ${host}:${port} has a rank ${rank} already and does not end: is another launch running there?`,
          )
        : endedBy(farewell);
    }
  }

  /**
   * Closes the connection: once its store is gone, libtorch 1.13's client keeps a core busy, and ends the process if a
   * request was pending.
   */
  async #leave(): Promise<void> {
    await native.storeClose(this.id);
  }

  /** The store of torchrun's agent, which outlives its ranks. Checks nobody's place. */
  static async ofAgent({ host, port, rank }: Place, prefix: string, timeoutMs: number): Promise<SharedStore> {
    const id = await native.storeTcp(host, port, false, timeoutMs, prefix).catch((error: Error) => {
      throw unreachable(error, { host, port, rank, isServer: false, timeoutMs });
    });
    return new SharedStore(id);
  }

  static async file(path: string, ranks: number): Promise<SharedStore> {
    return new SharedStore(await native.storeFile(path, ranks));
  }

  /**
   * Two launches at one address would mix their keys, and ranks started with different world sizes would wait for ever.
   * So rank 0 publishes the launch and its number of ranks, and every rank registers once. A rank that sees a mismatch
   * tells the others.
   */
  async #checkPlace({ rank, size, runId }: Place, timeoutMs: number): Promise<void> {
    if (rank === 0) {
      await this.set(sizeKey, String(size));
      await this.set(runKey, runId);
    }
    const found = await this.wait(runKey, { timeoutMs, what: 'rank 0' });
    if (found !== runId)
      throw new WorldError(
        `The store at this address belongs to another launch (${found}, and this is ${runId}): choose another --master-port.`,
      );
    const known = await this.get(sizeKey);
    const fault =
      known !== String(size)
        ? `rank ${rank} was started as one of ${size} processes and rank 0 as one of ${known}: WORLD_SIZE must be the same for all.`
        : (await this.add(rankKey(rank), 1)) > 1
          ? `two processes were started as rank ${rank}: each needs a RANK of its own.`
          : undefined;
    if (fault === undefined) return;
    await this.abort({ rank, reason: fault });
    throw new WorldError(`The processes do not fit together: ${fault}`);
  }

  set(key: string, value: string): Promise<void> {
    return native.storeSet(this.id, key, value).catch(lost);
  }
  get(key: string): Promise<string | undefined> {
    return native.storeGet(this.id, key).catch(lost);
  }
  add(key: string, amount: number): Promise<number> {
    return native.storeAdd(this.id, key, amount).catch(lost);
  }

  /** The value of a key, once somebody has set it. Fails as soon as any rank has given up. */
  async wait(key: string, options: { timeoutMs: number; what: string }): Promise<string> {
    return this.#until(() => this.get(key), options);
  }

  /**
   * Waits until `count` ranks have arrived here. The error names those that have not. Meanwhile it does `work`, if
   * given, until all have arrived and one of them has none left.
   */
  async barrier(name: string, rank: number, count: number, options: BarrierOptions): Promise<void> {
    const { timeoutMs, work, onWait, what = `"${name}" on rank ${rank}` } = options;
    const here = (who: number) => `barrier/${name}/${who}`;
    await this.set(here(rank), '1');
    await this.add(`barrier/${name}`, 1);
    const workless = `barrier/${name}/workless`;
    if (work !== undefined)
      while ((await this.add(workless, 0)) === 0 && work()) {
        await this.throwIfAborted();
        await nextTurn();
      }
    const complete = async () => (await this.add(`barrier/${name}`, 0)) >= count;
    const arrived = async () => {
      if (await complete()) return true;
      if ((await this.add(leftKey, 0)) === 0) return undefined;
      // A rank that has left will not come, unless it came and left between the two requests.
      if (await complete()) return true;
      await this.throwIfAborted();
      throw new WorldError(
        `"${name}" on rank ${rank}: a process has ended without coming there. Missing: rank ${(await absent()).join(', rank ')}.`,
      );
    };
    const absent = async () => {
      const seen = await Promise.all(Array.from({ length: count }, (_, who) => this.get(here(who))));
      return seen.flatMap((value, who) => (value === undefined ? [who] : []));
    };
    await this.#until(arrived, {
      timeoutMs,
      what,
      missing: async () => `Missing: rank ${(await absent()).join(', rank ')}.`,
      ...(onWait ? { notice: { afterMs: onWait.afterMs, tell: async () => onWait.tell(await absent()) } } : {}),
    });
    if (work !== undefined) await this.add(workless, 1);
  }

  async #until<T>(ask: () => Promise<T | undefined>, { timeoutMs, what, missing, notice }: Wait): Promise<T> {
    const begun = performance.now();
    let isTold = notice === undefined;
    for (;;) {
      const value = await ask();
      if (value !== undefined) return value;
      await this.throwIfAborted();
      const waited = performance.now() - begun;
      if (!isTold && waited > (notice?.afterMs ?? 0)) {
        isTold = true;
        await notice?.tell();
      }
      if (waited > timeoutMs)
        throw new WorldError(`Waited ${timeoutMs / 1000} s for ${what}. ${(await missing?.()) ?? ''}`.trimEnd());
      await sleep(pauseAfter(waited));
    }
  }

  /** Tells every rank that this one gives up, and why. */
  async abort(farewell: Farewell): Promise<void> {
    if ((await this.get(abortKey)) === undefined) await this.set(abortKey, JSON.stringify(farewell));
  }

  async aborted(): Promise<Farewell | undefined> {
    const text = await this.get(abortKey);
    return text === undefined ? undefined : (JSON.parse(text) as Farewell);
  }

  async throwIfAborted(): Promise<void> {
    const aborted = await this.aborted();
    if (aborted !== undefined) throw endedBy(aborted);
  }
}

interface Wait {
  timeoutMs: number;
  what: string;
  missing?: () => Promise<string>;
  notice?: { afterMs: number; tell: () => Promise<void> };
}

/** Milliseconds for which a store that goes on keeps a connection; one that ends drops it. */
const settledMs = 500;

/**
 * A process that ends may close its port a moment after its connections, and drops what came in between: libtorch 1.13's client then ends this process.
 * Waits until the port is closed, or belongs to a store that keeps a connection.
 */
async function portLeft({ host, port }: Place, timeoutMs: number): Promise<void> {
  for (const end = performance.now() + timeoutMs; performance.now() < end; await sleep(20)) {
    const connection = connect(port, host);
    const dropped = new Promise<'dropped'>((resolve) => connection.once('close', () => resolve('dropped')));
    const refused = new Promise<'refused'>((resolve) =>
      connection.once('error', (error: NodeJS.ErrnoException) => error.code === 'ECONNREFUSED' && resolve('refused')),
    );
    connection.resume();
    const outcome = await Promise.race([refused, dropped, sleep(settledMs)]);
    connection.destroy();
    if (outcome !== 'dropped') return;
  }
}

function lost(error: Error): never {
  throw new WorldError(
    `The store of rank 0 does not answer (${error.message.split('\n')[0]}): rank 0 has ended, or, under torchrun, the launcher's torch is of another version than the libtorch that attune was built with.`,
  );
}

/**
 * Milliseconds until the store is asked again: a twentieth of the time waited so far, so that little is lost at the
 * end.
 */
export const pauseAfter = (waitedMs: number): number => Math.min(20, Math.max(1, waitedMs / 20));

function unreachable(
  error: Error,
  {
    host,
    port,
    rank,
    isServer,
    timeoutMs,
  }: { host: string; port: number; rank: number; isServer: boolean; timeoutMs: number },
): Error {
  const cause = error.message.split('\n')[0]?.replace(/\.+$/, '');
  if (!isServer)
    return new WorldError(
      `Rank ${rank} did not reach the store of rank 0 at ${host}:${port} within ${timeoutMs / 1000} s: ${cause}. Is rank 0 running, and does a firewall let the port through?`,
    );
  // c10d lists every address that it tried.
  const reason = /errno: \d+ - ([^)]+)/.exec(error.message)?.[1];
  if (reason === 'Address already in use') return new UserError(portInUse(port));
  if (reason === 'Permission denied')
    return new UserError(`Rank 0 may not open port ${port} (permission denied): choose one above 1023.`);
  return new WorldError(`Rank 0 cannot open its store at ${host}:${port}: ${reason ?? cause}.`);
}

/** Throws an error unless this build has c10d. */
export function checkDistributed(): void {
  if (native.distInfo().c10d) return;
  throw new AttuneError(
    "This libtorch was built without c10d (distributed training): several processes cannot work together with it. The wheels of PyTorch and Debian's libtorch-dev have it.",
  );
}
