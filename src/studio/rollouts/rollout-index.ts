/**
 * A rollout database with its index: rows to filter and sort by in SQL, texts from the database itself.
 *
 *     using index = new RolloutIndex('run/rollouts.db', cacheFolder);
 *     await index.refresh();
 *     index.database.prepare('select count(*) from rows where reward > 0.5').get();
 */
import { createHash } from 'node:crypto';
import { realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { makeFolder } from '../../folder.ts';
import { type IndexState, indexSql, type Side } from './index-schema.ts';
import { addMeanKl } from './mean-kl.ts';

/** How long an answer waits for the index: a small database is indexed whole in that time, a large one goes on later. */
const patience = { smallBytes: 16 << 20, smallMs: 5000, largeMs: 50 };

export class RolloutIndex implements Disposable {
  /** The index, with the rollout database attached as `source`, read-only. */
  readonly database: DatabaseSync;
  readonly path: string;
  readonly #worker: Worker;
  #state: IndexState = { rows: zero(), words: zero(), source: zero(), tasks: [] };
  /** Whether the worker has told how far it is. */
  #told = false;
  #failure: string | undefined;
  #building: Promise<void> | undefined;
  /** The database's files as they were when the last build began. */
  #seen = '';
  #finish = () => {};

  constructor(path: string, cache: string) {
    this.path = realpathSync(path);
    makeFolder(cache);
    const name = createHash('sha256').update(this.path).digest('hex').slice(0, 24);
    const index = join(cache, `rollouts-${name}.db`);
    // Sources run as TypeScript, the published package as JavaScript.
    const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
    const script = new URL(`./index-worker.${extension}`, import.meta.url);
    this.database = new DatabaseSync(index, { timeout: 10_000 });
    this.database.exec('pragma journal_mode = wal; pragma synchronous = off; pragma mmap_size = 1073741824;');
    addMeanKl(this.database);
    this.database.exec(indexSql);
    this.database.exec(`attach '${pathToFileURL(this.path).href.replaceAll("'", "''")}?mode=ro' as source`);
    this.#worker = new Worker(script, { workerData: { source: this.path, index } });
    this.#worker.unref();
    this.#worker.on('message', (told: IndexState & { done?: boolean; error?: string }) => {
      if (told.error !== undefined) this.#failure = told.error;
      else {
        this.#state = told;
        this.#told = true;
      }
      if (told.error !== undefined || told.done) this.#finish();
    });
    this.#worker.on('error', (error) => {
      this.#failure = (error as Error).message;
      this.#finish();
    });
  }

  get state(): Readonly<IndexState> {
    return this.#state;
  }

  /** Share of the rows whose words are indexed. */
  indexed(side: Side): number {
    if (!this.#told) return 0;
    const total = this.#state.source[side];
    return total === 0 ? 1 : Math.min(1, this.#state.words[side] / total);
  }

  /** Whether every row is there to filter by. */
  complete(side: Side): boolean {
    return this.#told && this.#failure === undefined && this.#state.rows[side] >= this.#state.source[side];
  }

  /** Goes on with the index where rows were added, and waits a moment for it. */
  async refresh(waitMs = this.#patienceMs()): Promise<void> {
    const now = this.#signature();
    if (this.#building === undefined && now === this.#seen) return;
    if (this.#building === undefined) {
      this.#seen = now;
      this.#building = new Promise<void>((resolve) => {
        this.#finish = () => {
          this.#building = undefined;
          resolve();
        };
      });
      this.#worker.ref();
      this.#worker.postMessage('build');
      void this.#building.then(() => this.#worker.unref());
    }
    await Promise.race([this.#building, sleep(waitMs, undefined, { ref: false })]);
  }

  /** Size and time of the database and of its log, into which a training writes first. */
  #signature(): string {
    return [this.path, `${this.path}-wal`]
      .map((path) => statSync(path, { throwIfNoEntry: false }))
      .map((found) => (found === undefined || found.size === 0 ? '' : `${found.size} ${found.mtimeMs}`))
      .join(' ');
  }

  #patienceMs(): number {
    const { size } = statSync(this.path);
    return size < patience.smallBytes ? patience.smallMs : patience.largeMs;
  }

  /** Waits until the whole index is there. */
  async whole(): Promise<void> {
    await this.refresh();
    await this.#building;
    if (this.#failure !== undefined) throw new Error(this.#failure);
  }

  [Symbol.dispose](): void {
    void this.#worker.terminate();
    this.database.close();
  }
}

const zero = (): Record<Side, number> => ({ train: 0, eval: 0 });

/** Indexes of the runs that were looked at lately. */
export class RolloutIndexes implements Disposable {
  readonly #cache: string;
  readonly #indexes = new Map<string, RolloutIndex>();
  readonly #most: number;

  constructor(cache: string, most = 4) {
    this.#cache = cache;
    this.#most = most;
  }

  async of(path: string): Promise<RolloutIndex> {
    const index = this.#indexes.get(path) ?? new RolloutIndex(path, this.#cache);
    this.#indexes.delete(path);
    this.#indexes.set(path, index);
    for (const [oldest, unused] of this.#indexes) {
      if (this.#indexes.size <= this.#most) break;
      this.#indexes.delete(oldest);
      unused[Symbol.dispose]();
    }
    await index.refresh();
    return index;
  }

  [Symbol.dispose](): void {
    for (const index of this.#indexes.values()) index[Symbol.dispose]();
    this.#indexes.clear();
  }
}
