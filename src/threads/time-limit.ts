/** Code of a program's own in this process, under a time limit: nobody can stop it, but nobody waits for it longer. */

/** Node runs a timer of more than 2³¹ − 1 ms at once. These are 24 days. */
const longestTimerMs = 2 ** 31 - 1;

/** The delay of a timer: as long as the limit, where Node knows such a time. */
export const timerMs = (timeLimitMs: number): number => Math.min(timeLimitMs, longestTimerMs);

export interface TimeLimit {
  timeLimitMs: number;
  tooLate(): Error;
  signal?: AbortSignal | undefined;
}

/** Runs `body`; rejects at the time limit or when the signal is aborted, and tells `body` by its own signal. */
export async function withinTime<T>(
  body: (signal: AbortSignal) => T | Promise<T>,
  { timeLimitMs, tooLate, signal }: TimeLimit,
): Promise<T> {
  const limit = new AbortController();
  // AbortSignal.timeout does not keep the process alive: with nothing else pending, Node would exit silently.
  // This timer keeps it alive.
  const timer = setTimeout(() => limit.abort(tooLate()), timerMs(timeLimitMs));
  const both = signal === undefined ? limit.signal : AbortSignal.any([signal, limit.signal]);
  try {
    return await untilAborted(body, both);
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Runs `body`; does not wait for it once the signal is aborted. */
export async function untilAborted<T>(body: (signal: AbortSignal) => T | Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted(); // one that is aborted already tells no more
  const stopped = Promise.withResolvers<never>();
  const stop = () => stopped.reject(signal.reason);
  signal.addEventListener('abort', stop);
  const work = Promise.resolve().then(() => body(signal));
  // Whichever loses the race is heard by nobody.
  stopped.promise.catch(() => {});
  work.catch(() => {});
  try {
    return await Promise.race([work, stopped.promise]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
