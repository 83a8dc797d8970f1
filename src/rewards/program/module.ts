/**
 * A TypeScript module of the user's as a scorer: its default export takes a batch and returns numbers or named parts.
 *
 *     // my-reward.ts
 *     export default async (batch) => batch.map(({ response }) => -response.length);
 *
 *     using scorer = await loadRewardModule('./my-reward.ts', { timeLimitMs: 10_000 });
 *
 * It runs in its own thread. An endless loop is stopped at the time limit. An unhandled rejection, a timer that throws
 * or process.exit() ends the thread, not the training, which saves a checkpoint and reports the cause.
 */
import { statSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import { checkArgument, checkArguments, text } from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import type { RewardItem, RewardParts, RewardScorer, ScoreOptions } from '../scorer.ts';
import { messageOf, RewardError } from './batch.ts';
import { defaultTimeLimitMs, programRules, type RewardFunctionOptions, tooLate } from './function.ts';
import type { ThreadReply, ThreadRequest } from './module-thread.ts';

/** A module may import much before its first batch. */
const loadLimitMs = 60_000;
/** How long a function that listens to its signal has to tidy up before its thread is ended. */
const graceMs = 200;

/** A reward module that runs in its own thread, until it is disposed. */
export interface RewardModule extends RewardScorer, Disposable {
  dispose(): void;
}

/** Refuses a path that is no file. */
export function checkModuleFile(path: string): void {
  checkArgument('The path of a reward module', path, text);
  if (!statSync(resolve(path), { throwIfNoEntry: false })?.isFile())
    throw new UserError(`There is no reward module ${path}.`);
}

/** Loads a TypeScript or JavaScript module whose default export is a reward function. */
export async function loadRewardModule(path: string, options: RewardFunctionOptions = {}): Promise<RewardModule> {
  checkModuleFile(path);
  checkArguments('loadRewardModule', options, programRules);
  checkNames('loadRewardModule', options, Object.keys(programRules));
  const { name = basename(path).replace(/\.[^.]+$/, ''), timeLimitMs = defaultTimeLimitMs } = options;
  const thread = new ModuleThread(path, name, timeLimitMs);
  await thread.ready();
  const parts = async (items: readonly RewardItem[], { signal }: ScoreOptions = {}): Promise<RewardParts> =>
    items.length === 0 ? { total: [], parts: {} } : thread.score(items, signal);
  const dispose = () => thread.dispose();
  return {
    name,
    parts,
    score: async (items, given) => (await parts(items, given)).total,
    dispose,
    [Symbol.dispose]: dispose,
  };
}

interface Waiting {
  resolve(parts: RewardParts): void;
  reject(error: Error): void;
}

class ModuleThread {
  readonly #path: string;
  readonly #name: string;
  readonly #timeLimitMs: number;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Promise<Worker> | undefined;
  #next = 0;
  /** Why the thread ended between batches; the next batch fails with it. */
  #failure: RewardError | undefined;

  constructor(path: string, name: string, timeLimitMs: number) {
    this.#path = path;
    this.#name = name;
    this.#timeLimitMs = timeLimitMs;
  }

  /** The running thread; started again if the last one was ended. */
  ready(): Promise<Worker> {
    this.#worker ??= this.#start();
    return this.#worker;
  }

  async score(items: readonly RewardItem[], signal?: AbortSignal): Promise<RewardParts> {
    signal?.throwIfAborted();
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure !== undefined) throw failure;
    const worker = await this.ready();
    const number = this.#next++;
    const { promise, resolve: settle, reject } = Promise.withResolvers<RewardParts>();
    this.#waiting.set(number, { resolve: settle, reject });
    const stop = (error: Error) => {
      reject(error);
      worker.postMessage({ kind: 'abort', number } satisfies ThreadRequest);
      this.#end(worker, error);
    };
    const onAbort = () => stop(signal?.reason as Error);
    const timer = setTimeout(() => stop(tooLate(this.#name, this.#timeLimitMs)), this.#timeLimitMs);
    signal?.addEventListener('abort', onAbort);
    try {
      worker.ref();
      worker.postMessage({ kind: 'score', number, items } satisfies ThreadRequest);
      return await promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      this.#waiting.delete(number);
      if (this.#waiting.size === 0) worker.unref();
    }
  }

  dispose(): void {
    const worker = this.#worker;
    this.#worker = undefined;
    worker?.then(
      (each) => each.terminate(),
      () => {},
    );
  }

  #start(): Promise<Worker> {
    // Sources run as TypeScript, the published package as JavaScript.
    const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
    const script = new URL(`./module-thread.${extension}`, import.meta.url);
    const worker = new Worker(script, { workerData: { file: resolve(this.#path), name: this.#name } });
    const { promise, resolve: ready, reject } = Promise.withResolvers<Worker>();
    const fail = (why: string) => {
      reject(new UserError(`The reward module ${this.#path} ${why}`));
      void worker.terminate();
    };
    const timer = setTimeout(() => fail(`was not loaded after ${loadLimitMs / 1000} s.`), loadLimitMs);
    worker.on('message', (reply: ThreadReply) => {
      if (reply.kind === 'ready') {
        clearTimeout(timer);
        worker.unref();
        ready(worker);
      } else if (reply.kind === 'unusable') fail(reply.message);
      else this.#settle(reply);
    });
    // Errors outside of a batch: an unhandled rejection, an exception in a timer.
    worker.on('error', (error) => {
      fail(`failed while it was loaded: ${messageOf(error)}`);
      this.#lost(worker, `stopped on an error outside of a batch: ${messageOf(error)}`);
    });
    worker.on('exit', (code) => {
      clearTimeout(timer);
      fail(`left by process.exit(${code}) while it was loaded.`);
      this.#lost(worker, `left by process.exit(${code}): a reward may not end the program.`);
    });
    promise.catch(() => {
      this.#worker = undefined;
    });
    return promise;
  }

  #settle(reply: Extract<ThreadReply, { kind: 'scored' | 'failed' }>): void {
    const waiting = this.#waiting.get(reply.number);
    if (reply.kind === 'scored') waiting?.resolve(reply.parts);
    else waiting?.reject(new RewardError(reply.message, reply.fault));
  }

  /** The thread ended by itself. */
  #lost(worker: Worker, why: string): void {
    const error = new RewardError(`The reward module ${this.#path} ${why}`, 'batch');
    void this.#worker?.then(
      (current) => {
        if (current !== worker) return;
        this.#worker = undefined;
        if (this.#waiting.size === 0) this.#failure ??= error;
        for (const { reject } of this.#waiting.values()) reject(error);
      },
      () => {},
    );
  }

  /** Ends the thread: pending batches fail, and the next batch starts a new thread. */
  #end(worker: Worker, error: Error): void {
    this.#worker = undefined;
    for (const { reject } of this.#waiting.values()) reject(error);
    const timer = setTimeout(() => void worker.terminate(), graceMs);
    worker.once('exit', () => clearTimeout(timer));
    worker.unref();
  }
}
