/**
 * A function of the program's own as a scorer: it takes a batch and gives numbers, or named parts. It runs in this process,
 * so that it may use whatever the program holds; modules named on a command line run in a thread (module.ts).
 *
 *     const scorer = rewardFunction((batch) => batch.map(({ response }) => -response.length), { timeLimitMs: 10_000 });
 */
import type { RewardItem, RewardParts, RewardScorer, ScoreOptions } from '../scorer.ts';
import { RewardError, type RewardFunction, scoreBatch } from './batch.ts';

export interface RewardFunctionOptions {
  name?: string;
  /** How long one batch may take; 60 s unless given. */
  timeLimitMs?: number;
}

export const defaultTimeLimitMs = 60_000;

export const tooLate = (name: string, timeLimitMs: number) =>
  new RewardError(`The reward "${name}" took longer than ${timeLimitMs / 1000} s for a batch.`, 'batch');

export function rewardFunction(body: RewardFunction, options: RewardFunctionOptions = {}): RewardScorer {
  const { name = 'function', timeLimitMs = defaultTimeLimitMs } = options;
  const parts = async (items: readonly RewardItem[], { signal }: ScoreOptions = {}): Promise<RewardParts> => {
    if (items.length === 0) return { total: [], parts: {} };
    const limit = new AbortController();
    // A timer of its own, since AbortSignal.timeout does not keep the process alive: with nothing else left to wait for,
    // Node would leave without a word.
    const timer = setTimeout(() => limit.abort(tooLate(name, timeLimitMs)), timeLimitMs);
    const both = signal === undefined ? limit.signal : AbortSignal.any([signal, limit.signal]);
    const stopped = new Promise<never>((_, reject) => {
      both.addEventListener('abort', () => reject(both.reason));
    });
    stopped.catch(() => {});
    const work = Promise.resolve().then(() => scoreBatch(body, items, { name, signal: both }));
    work.catch(() => {});
    try {
      return await Promise.race([work, stopped]);
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  };
  return { name, parts, score: async (items, given) => (await parts(items, given)).total };
}
