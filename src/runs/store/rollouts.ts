/**
 * The rollouts of a policy run in SQLite. A separate thread writes them, so that training does not wait. Other
 * processes can read at any time (WAL).
 *
 *     const store = await RolloutStore.open('run/rollouts.db');
 *     await store.add(rollouts);                     // returns at once unless the writer is far behind
 *     await store.flush();                           // before a checkpoint
 *
 *     using rollouts = openRollouts('run/rollouts.db');
 *     rollouts.best(5);
 */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { AttuneError, UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import type {
  EvalRollout,
  Rollout,
  RolloutReply,
  RolloutRequest,
  RolloutTokens,
  StoredEpisode,
  StoredTurn,
} from './schema.ts';

export type { EvalRollout, Rollout, RolloutFacts, RolloutTokens, StoredEpisode, StoredTurn } from './schema.ts';

interface Waiting {
  resolve(): void;
  reject(error: Error): void;
}

/** Pending batches before `add` waits: enough to hide a slow disk, few enough to bound memory. */
const defaultQueueLimit = 64;

/** The thread of a closed store, kept for the next: starting one takes longer than all writes of a short run. */
let idle: Worker | undefined;

function takeThread(): Worker {
  const found = idle;
  idle = undefined;
  if (found !== undefined) return forget(found);
  // Sources run as TypeScript, the published package as JavaScript.
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  return new Worker(new URL(`./worker.${extension}`, import.meta.url));
}

/** Removes a store's listeners, but not the worker's own. */
function forget(worker: Worker): Worker {
  for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event);
  return worker;
}

function leaveThread(worker: Worker): void {
  if (idle !== undefined) return void worker.terminate();
  idle = worker;
  worker.unref();
  worker.on('error', () => {});
  worker.on('exit', () => {
    if (idle === worker) idle = undefined;
  });
}

/** Counted over all stores, so that a late reply never matches another store's request. */
let requests = 0;

type Unnumbered<T> = T extends { number: number } ? Omit<T, 'number'> : never;

export class RolloutStore {
  readonly path: string;
  readonly #worker: Worker;
  readonly #queueLimit: number;
  readonly #waiting = new Map<number, Waiting>();
  readonly #blocked: (() => void)[] = [];
  #failure: Error | undefined;
  #closing: Promise<void> | undefined;
  /** Whether the thread is alive and still belongs to this store. */
  #hasThread = true;

  /** `resumedAt`: rows of later steps are deleted, because the run takes those steps again. */
  static async open(path: string, options: { resumedAt?: number; queueLimit?: number } = {}): Promise<RolloutStore> {
    makeFolder(dirname(path));
    const store = new RolloutStore(path, options.queueLimit);
    try {
      await store.#send({ kind: 'open', path, resumedAt: options.resumedAt });
    } catch (error) {
      store.#leave();
      throw error;
    }
    return store;
  }

  private constructor(path: string, queueLimit = defaultQueueLimit) {
    this.path = path;
    this.#queueLimit = queueLimit;
    this.#worker = takeThread();
    this.#worker.on('message', (reply: RolloutReply) => this.#settle(reply));
    this.#worker.on('error', (error) => this.#fail(error as Error));
    this.#worker.on('exit', () => this.#fail(new Error('the writing thread ended')));
    this.#worker.unref();
  }

  async add(rollouts: Rollout[]): Promise<void> {
    await this.#enqueue({ kind: 'rows', rollouts });
  }

  async addEval(evalRollouts: EvalRollout[]): Promise<void> {
    await this.#enqueue({ kind: 'rows', evalRollouts });
  }

  /** Waits until everything added so far is in the database. */
  async flush(): Promise<void> {
    if (this.#closing !== undefined) throw this.#closed();
    await this.#send({ kind: 'flush' });
    this.#throwIfFailed();
  }

  /** Closes the database after everything added so far is written. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    while (this.#hasThread && this.#blocked.length > 0) await this.#untilSettled();
    try {
      if (this.#hasThread) await this.#send({ kind: 'close' });
    } finally {
      this.#leave();
    }
    this.#throwIfFailed();
  }

  #leave(): void {
    const worker = forget(this.#worker);
    if (this.#hasThread) leaveThread(worker);
    this.#hasThread = false;
  }

  #untilSettled(): Promise<void> {
    return new Promise((resolve) => this.#blocked.push(resolve));
  }

  async #enqueue(request: Unnumbered<RolloutRequest>): Promise<void> {
    this.#throwIfFailed();
    if (this.#closing !== undefined) throw this.#closed();
    while (this.#waiting.size >= this.#queueLimit) {
      await this.#untilSettled();
      this.#throwIfFailed();
    }
    this.#send(request).catch((error: Error) => {
      this.#failure ??= error;
    });
  }

  #send(request: Unnumbered<RolloutRequest>): Promise<void> {
    if (!this.#hasThread) return Promise.reject(this.#failure ?? this.#closed());
    const number = requests++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#worker.ref();
      this.#worker.postMessage({ ...request, number });
    });
  }

  #settle(reply: RolloutReply): void {
    const waiting = this.#waiting.get(reply.number);
    this.#waiting.delete(reply.number);
    if (this.#waiting.size === 0) this.#worker.unref();
    if (reply.error === undefined) waiting?.resolve();
    else waiting?.reject(this.#explain(reply.error));
    for (const wake of this.#blocked.splice(0)) wake();
  }

  #fail(error: Error): void {
    this.#hasThread = false;
    this.#failure ??= this.#explain(error.message);
    for (const waiting of this.#waiting.values()) waiting.reject(this.#failure);
    this.#waiting.clear();
    for (const wake of this.#blocked.splice(0)) wake();
  }

  #closed(): AttuneError {
    return new AttuneError(`${this.path} is closed: nothing more can be written to it by this store.`);
  }

  #explain(message: string): AttuneError {
    if (/not a database|malformed/.test(message))
      return new UserError(
        `${this.path} is damaged (${message}). Move it away, and the run goes on with a new one; what it held cannot be read.`,
      );
    if (/disk is full/.test(message))
      return new AttuneError(`The disk is full: rollouts could not be written to ${this.path}.`);
    return new AttuneError(`Cannot write rollouts to ${this.path}: ${message}`);
  }

  #throwIfFailed(): void {
    if (this.#failure) throw this.#failure;
  }
}

export interface StoredRollout extends Omit<Rollout, 'tokens' | 'parts' | 'facts' | 'episode'> {
  id: number;
}
export interface StoredEvalRollout extends Omit<EvalRollout, 'parts' | 'facts' | 'episode'> {
  id: number;
}

const columns =
  'id, step, epoch, prompt_index as promptIndex, rollout_index as rolloutIndex, prompt, completion, reward, advantage';
const evalColumns = 'id, step, epoch, prompt_index as promptIndex, prompt, completion, reward';

export interface RolloutQuery {
  /** One step, or an inclusive range. */
  step?: number | [number, number];
  promptIndex?: number;
  order?: 'best' | 'worst' | 'step';
  limit?: number;
}

/** A read-only view, safe while a run is writing. */
export class RolloutReader implements Disposable {
  readonly #database: DatabaseSync;

  constructor(path: string) {
    this.#database = openForReading(path);
  }

  query(query: RolloutQuery = {}): StoredRollout[] {
    return this.#select(columns, 'rollouts', query) as unknown as StoredRollout[];
  }

  evalQuery(query: RolloutQuery = {}): StoredEvalRollout[] {
    return this.#select(evalColumns, 'eval_rollouts', query) as unknown as StoredEvalRollout[];
  }

  best = (limit = 10, step?: RolloutQuery['step']) => this.query({ step, order: 'best', limit });
  worst = (limit = 10, step?: RolloutQuery['step']) => this.query({ step, order: 'worst', limit });
  atStep = (step: number) => this.query({ step });
  /** All responses to one prompt, oldest first. */
  promptOverTime = (promptIndex: number) => this.query({ promptIndex });

  /** Per step: count, mean, smallest and largest reward. */
  steps = () => this.#steps('rollouts');
  /** The same for held-out prompts. */
  evalSteps = () => this.#steps('eval_rollouts');

  parts = (rolloutId: number) => this.#parts('reward_parts', rolloutId);
  evalParts = (rolloutId: number) => this.#parts('eval_reward_parts', rolloutId);

  /** The turns of an episode; undefined for a single response. */
  episode = (rolloutId: number) => this.#episode('', rolloutId);
  evalEpisode = (rolloutId: number) => this.#episode('eval_', rolloutId);

  tokens(rolloutId: number): RolloutTokens | undefined {
    const row = this.#database.prepare('select * from rollout_tokens where rollout_id = ?').get(rolloutId);
    if (!row) return undefined;
    const floats = (value: unknown) => (value === null ? undefined : new Float32Array(copied(value as Uint8Array)));
    return {
      promptIds: new Int32Array(copied(row.prompt_ids as Uint8Array)),
      completionIds: new Int32Array(copied(row.completion_ids as Uint8Array)),
      logprobs: new Float32Array(copied(row.logprobs as Uint8Array)),
      refLogprobs: floats(row.ref_logprobs),
      values: floats(row.value_estimates),
      advantages: floats(row.advantages),
      ...this.#sequence(rolloutId),
    };
  }

  close(): void {
    this.#database.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #sequence(rolloutId: number): Pick<RolloutTokens, 'sequence'> {
    if (!this.#has('rollout_sequences')) return {};
    const row = this.#database.prepare('select ids, spans from rollout_sequences where rollout_id = ?').get(rolloutId);
    if (row === undefined) return {};
    const whole = (value: unknown) => new Int32Array(copied(value as Uint8Array));
    const sequence = { ids: whole(row.ids), spans: whole(row.spans) };
    const found = this.#has('rollout_sequence_starts')
      ? this.#database.prepare('select starts from rollout_sequence_starts where rollout_id = ?').get(rolloutId)
      : undefined;
    return { sequence: { ...sequence, ...(found && { starts: whole(found.starts) }) } };
  }

  #episode(side: '' | 'eval_', rolloutId: number): StoredEpisode | undefined {
    if (!this.#has(`${side}rollout_episodes`)) return undefined;
    const found = this.#database
      .prepare(`select ended_by from ${side}rollout_episodes where rollout_id = ?`)
      .get(rolloutId);
    if (found === undefined) return undefined;
    const rows = this.#database
      .prepare(`select role, content, tokens, reward from ${side}rollout_turns where rollout_id = ? order by place`)
      .all(rolloutId);
    const turns = rows.map(
      ({ role, content, tokens, reward }): StoredTurn => ({
        ...{ role: String(role), content: String(content) },
        ...(tokens !== null && { tokens: Number(tokens) }),
        ...(reward !== null && { reward: Number(reward) }),
      }),
    );
    return { end: String(found.ended_by), turns };
  }

  /** Databases of earlier versions lack tables. */
  #has(table: string): boolean {
    return (
      this.#database.prepare("select 1 from sqlite_master where type = 'table' and name = ?").get(table) !== undefined
    );
  }

  #steps(table: string): { step: number; count: number; mean: number; min: number; max: number }[] {
    const sql = `select step, count(*) as count, avg(reward) as mean, min(reward) as min, max(reward) as max
      from ${table} group by step order by step`;
    return this.#database.prepare(sql).all() as never;
  }

  #parts(table: string, rolloutId: number): Record<string, number> {
    const rows = this.#database.prepare(`select name, value from ${table} where rollout_id = ?`).all(rolloutId);
    return Object.fromEntries(rows.map((row) => [row.name as string, row.value as number]));
  }

  #select(names: string, table: string, query: RolloutQuery): Record<string, unknown>[] {
    const conditions: string[] = [];
    const values: number[] = [];
    if (query.step !== undefined) {
      const [from, to] = typeof query.step === 'number' ? [query.step, query.step] : query.step;
      conditions.push('step between ? and ?');
      values.push(from, to);
    }
    if (query.promptIndex !== undefined) {
      conditions.push('prompt_index = ?');
      values.push(query.promptIndex);
    }
    const order = { best: 'reward desc, id', worst: 'reward asc, id', step: 'step, id' }[query.order ?? 'step'];
    const where = conditions.length > 0 ? `where ${conditions.join(' and ')}` : '';
    const limit = query.limit === undefined ? '' : `limit ${Math.trunc(query.limit)}`;
    return this.#database.prepare(`select ${names} from ${table} ${where} order by ${order} ${limit}`).all(...values);
  }
}

/** SQLite cannot create a log: CANTOPEN on a read-only disk, READONLY_DIRECTORY in another user's folder. */
const noLog = [14, 1544];

/**
 * A WAL database can be opened only if SQLite can write the log's index beside it. Where it cannot (an archive, a
 * read-only disk), nobody else writes the database either, so it is opened as immutable.
 */
function openForReading(path: string): DatabaseSync {
  try {
    return probed(path);
  } catch (error) {
    if (!noLog.includes((error as { errcode?: number }).errcode ?? 0) || !statSync(path).isFile())
      throw unreadable(path, error);
  }
  const log = statSync(`${path}-wal`, { throwIfNoEntry: false });
  if (log?.isFile() && log.size > 0)
    throw new UserError(
      `${path} was not closed by the run that wrote it, and its folder cannot be written: a part of it is still in ${basename(path)}-wal. Copy both to a folder that can be written, and read them there.`,
    );
  try {
    return probed(`${pathToFileURL(path)}?immutable=1`);
  } catch (error) {
    throw unreadable(path, error);
  }
}

function probed(location: string): DatabaseSync {
  const database = new DatabaseSync(location, { readOnly: true, timeout: 5000 });
  try {
    database.prepare('select step, reward, advantage from rollouts limit 1').get();
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

const unreadable = (path: string, error: unknown) =>
  new UserError(`${path} is no rollout database that can be read: ${(error as Error).message}.`);

export function openRollouts(path: string): RolloutReader {
  if (!existsSync(path))
    throw new UserError(`There is no rollout database ${path}. Policy runs write one with --save-rollouts.`);
  return new RolloutReader(path);
}

/** A blob's bytes in a separate buffer, aligned for typed arrays. */
function copied(bytes: Uint8Array): ArrayBuffer {
  return bytes.slice().buffer as ArrayBuffer;
}
