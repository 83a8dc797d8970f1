/**
 * A user's module in a thread of its own, which answers calls: reward functions and environments.
 *
 *     const thread = new ModuleThread({ path: './my-reward.ts', script: new URL('./module-thread.ts', import.meta.url), … });
 *     await thread.call({ items }, { timeLimitMs: 60_000, tooLate: () => new Error('…') });
 *
 * An endless loop is stopped at the time limit. An unhandled rejection, a timer that throws or process.exit() ends the
 * thread, not the program: whoever waits is told why, and the next call starts another thread.
 */
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import { checkArgument, text } from '../arguments.ts';
import { UserError } from '../errors.ts';
import { messageOf, type ThreadReply, type ThreadRequest } from './messages.ts';
import { timerMs } from './time-limit.ts';

/** A module may import much before its first call. */
const loadLimitMs = 60_000;
/** The code with which Node ends a thread that has nothing left to do, and still awaits something at its top level. */
const unsettledCode = 13;
/** How long a function that listens to its signal has to tidy up before its thread is ended. */
const graceMs = 200;
/** A thread that does not answer for so long, after a call was late, is in an endless loop. */
const aliveMs = 1000;

export interface ThreadOptions {
  /** The user's file. */
  path: string;
  /** What runs in the thread, as .ts: it serves the module (served-module.ts). */
  script: URL;
  /** What the script is told besides the file. */
  data?: object;
  /** What messages call the module, what is called in it, and one call: 'reward module', 'reward', 'batch'. */
  words: { module: string; called: string; call: string };
  /** The error of a call whose code failed. */
  failure(message: string, fault: string): Error;
  /** A late call ends the thread. Otherwise the others go on, unless the thread is in an endless loop. */
  endsWithLateCall: boolean;
}

export interface CallLimits {
  /** From the moment on at which the thread came to the call. */
  timeLimitMs: number;
  tooLate(): Error;
  signal?: AbortSignal | undefined;
}

/** The thread ended, by another call's fault, before this one was answered: it may be made again. `cause` is why it ended. */
export class ThreadEnded extends Error {
  override name = 'ThreadEnded';
  declare readonly cause: Error;
  /** The call that is to blame has failed with `cause`: it is not made again. Otherwise nobody knows which one was. */
  readonly isBlamed: boolean;

  constructor(cause: Error, { isBlamed }: { isBlamed: boolean }) {
    super(cause.message, { cause });
    this.isBlamed = isBlamed;
  }
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: Error): void;
  /** The thread has come to it. */
  begun: boolean;
  /** Starts its time limit anew. */
  restart(): void;
}

export class ModuleThread {
  readonly #options: ThreadOptions;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Promise<Worker> | undefined;
  #next = 0;
  #starts = 0;
  /** Why the thread ended between calls; the next call fails with it. */
  #failure: Error | undefined;
  /** Somebody waits for a sign of life. */
  #alive: PromiseWithResolvers<void> | undefined;

  constructor(options: ThreadOptions) {
    this.#options = options;
  }

  /** How often a thread was started: what an earlier one held is gone. */
  get starts(): number {
    return this.#starts;
  }

  /** The running thread; started again if the last one was ended. */
  ready(): Promise<Worker> {
    this.#worker ??= this.#start();
    return this.#worker;
  }

  async call(request: object, { timeLimitMs, tooLate, signal }: CallLimits): Promise<unknown> {
    signal?.throwIfAborted();
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure !== undefined) throw failure;
    const worker = await this.ready();
    signal?.throwIfAborted();
    const number = this.#next++;
    const { promise, resolve: settle, reject } = Promise.withResolvers<unknown>();
    const stop = (error: Error) => {
      reject(error);
      worker.postMessage({ kind: 'abort', number } satisfies ThreadRequest);
      if (this.#options.endsWithLateCall) this.#end(worker, error);
      else void this.#endUnlessAlive(worker, error);
    };
    // Before the thread has come to a call, another one may be what takes so long.
    const onTime = () => (waiting.begun || !this.#isBusy ? stop(tooLate()) : waiting.restart());
    let timer = setTimeout(onTime, timerMs(timeLimitMs));
    const restart = () => {
      clearTimeout(timer);
      timer = setTimeout(onTime, timerMs(timeLimitMs));
    };
    const waiting: Waiting = { resolve: settle, reject, begun: false, restart };
    this.#waiting.set(number, waiting);
    const onAbort = () => stop(signal?.reason as Error);
    signal?.addEventListener('abort', onAbort);
    try {
      worker.ref();
      worker.postMessage({ kind: 'call', number, request } satisfies ThreadRequest);
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

  /** Whether the thread is at a call, or may still be at one that was late. */
  get #isBusy(): boolean {
    return this.#alive !== undefined || this.#waiting.values().some(({ begun }) => begun);
  }

  #start(): Promise<Worker> {
    const { path, script, data, words } = this.#options;
    this.#starts++;
    // Sources run as TypeScript, the published package as JavaScript.
    const own = import.meta.url.endsWith('.ts') ? script : new URL(script.href.replace(/\.ts$/, '.js'));
    const worker = new Worker(own, { workerData: { file: resolve(path), ...data } });
    const { promise, resolve: ready, reject } = Promise.withResolvers<Worker>();
    const fail = (why: string) => {
      reject(new UserError(`The ${words.module} ${path} ${why}`));
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
    // Errors outside of a call: an unhandled rejection, an exception in a timer.
    worker.on('error', (error) => {
      fail(`failed while it was loaded: ${messageOf(error)}`);
      this.#lost(worker, `stopped on an error outside of a ${words.call}: ${messageOf(error)}`);
    });
    worker.on('exit', (code) => {
      clearTimeout(timer);
      fail(
        code === unsettledCode
          ? 'waits at its top level for what never comes: an await there was not answered.'
          : `left by process.exit(${code}) while it was loaded.`,
      );
      this.#lost(worker, `left by process.exit(${code}): ${words.called} may not end the program.`);
    });
    promise.catch(() => {
      this.#worker = undefined;
    });
    return promise;
  }

  #settle(reply: Exclude<ThreadReply, { kind: 'ready' | 'unusable' }>): void {
    if (reply.kind === 'alive') {
      this.#alive?.resolve();
      return;
    }
    const waiting = this.#waiting.get(reply.number);
    if (waiting === undefined) return;
    if (reply.kind === 'done') waiting.resolve(reply.value);
    else if (reply.kind === 'failed') waiting.reject(this.#options.failure(reply.message, reply.fault));
    else {
      waiting.begun = true;
      waiting.restart();
    }
  }

  /** The thread ended by itself. A call that it was at may be the cause; one that it had not come to is not. */
  #lost(worker: Worker, why: string): void {
    const { path, words, failure } = this.#options;
    const error = failure(`The ${words.module} ${path} ${why}`, 'thread');
    void this.#worker?.then(
      (current) => {
        if (current !== worker) return;
        this.#worker = undefined;
        if (this.#waiting.size === 0) this.#failure ??= error;
        const isBlamed = this.#waiting.values().some(({ begun }) => begun);
        for (const { begun, reject } of this.#waiting.values())
          reject(begun ? error : new ThreadEnded(error, { isBlamed }));
      },
      () => {},
    );
  }

  /** Ends the thread if it is in an endless loop: it was asked for a sign of life and gave none. */
  async #endUnlessAlive(worker: Worker, error: Error): Promise<void> {
    if (this.#alive !== undefined) return;
    this.#alive = Promise.withResolvers<void>();
    worker.postMessage({ kind: 'ping' } satisfies ThreadRequest);
    const timer = setTimeout(() => this.#alive?.reject(error), aliveMs);
    try {
      await this.#alive.promise;
    } catch {
      if ((await this.#worker?.catch(() => undefined)) === worker) this.#end(worker, error);
    } finally {
      clearTimeout(timer);
      this.#alive = undefined;
    }
  }

  /** Ends the thread: pending calls fail, and the next one starts a new thread. */
  #end(worker: Worker, error: Error): void {
    this.#worker = undefined;
    for (const { reject } of this.#waiting.values()) reject(new ThreadEnded(error, { isBlamed: true }));
    const timer = setTimeout(() => void worker.terminate(), graceMs);
    worker.once('exit', () => clearTimeout(timer));
    worker.unref();
  }
}

/** Refuses a path that is no file. `what` names the module in the message. */
export function checkModuleFile(path: string, what: string): void {
  checkArgument(`The path of a ${what}`, path, text);
  if (!statSync(resolve(path), { throwIfNoEntry: false })?.isFile())
    throw new UserError(`There is no ${what} ${path}.`);
}
