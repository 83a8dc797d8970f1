/**
 * A function as a scorer: it takes a batch and returns numbers or named parts. It runs in this process and may use
 * anything in it. Modules named on a command line run in a thread instead (module.ts).
 *
 *     const scorer = rewardFunction((batch) => batch.map(({ response }) => -response.length), { timeLimitMs: 10_000 });
 */
import { above, call, checkArgument, checkArguments, text } from '../../arguments.ts';
import { checkNames } from '../../errors.ts';
import { withinTime } from '../../threads/time-limit.ts';
import type { RewardItem, RewardParts, RewardScorer, ScoreOptions } from '../scorer.ts';
import { RewardError, type RewardFunction, scoreBatch } from './batch.ts';

/** Name and time limit of a reward function or module. */
export interface RewardFunctionOptions {
  name?: string;
  /** Time limit of one batch; default 60 s. */
  timeLimitMs?: number;
}

export const defaultTimeLimitMs = 60_000;
export const programRules = { name: text, timeLimitMs: above(0) };

export const tooLate = (name: string, timeLimitMs: number) =>
  new RewardError(`The reward "${name}" took longer than ${timeLimitMs / 1000} s for a batch.`, 'batch');

/** Makes a scorer from your own function. */
export function rewardFunction(body: RewardFunction, options: RewardFunctionOptions = {}): RewardScorer {
  checkArgument('A reward function', body, call);
  checkArguments('rewardFunction', options, programRules);
  checkNames('rewardFunction', options, Object.keys(programRules));
  const { name = 'function', timeLimitMs = defaultTimeLimitMs } = options;
  const parts = async (items: readonly RewardItem[], { signal }: ScoreOptions = {}): Promise<RewardParts> => {
    if (items.length === 0) return { total: [], parts: {} };
    const limits = { timeLimitMs, tooLate: () => tooLate(name, timeLimitMs), signal };
    return withinTime((both) => scoreBatch(body, items, { name, signal: both }), limits);
  };
  return { name, parts, score: async (items, given) => (await parts(items, given)).total };
}
