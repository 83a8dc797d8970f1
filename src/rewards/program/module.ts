/**
 * A user's TypeScript module as a scorer. Its default export takes a batch and returns numbers or named parts.
 *
 *     // my-reward.ts
 *     export default async (batch) => batch.map(({ response }) => -response.length);
 *
 *     using scorer = await loadRewardModule('./my-reward.ts', { timeLimitMs: 10_000 });
 *
 * It runs in its own thread. An endless loop is stopped at the time limit. An unhandled rejection, a timer that throws
 * or process.exit() ends the thread, not the training, which saves a checkpoint and reports the cause.
 */
import { basename } from 'node:path';
import { checkArguments } from '../../arguments.ts';
import { checkNames } from '../../errors.ts';
import { checkModuleFile, ModuleThread, ThreadEnded } from '../../threads/module-thread.ts';
import type { RewardItem, RewardParts, RewardScorer, ScoreOptions } from '../scorer.ts';
import { RewardError, type RewardFault } from './batch.ts';
import { defaultTimeLimitMs, programRules, type RewardFunctionOptions, tooLate } from './function.ts';

/** A reward module, running in its own thread until it is disposed. */
export interface RewardModule extends RewardScorer, Disposable {
  dispose(): void;
}

/** The name used in messages. */
const word = 'reward module';

/** Loads a TypeScript or JavaScript module whose default export is a reward function. */
export async function loadRewardModule(path: string, options: RewardFunctionOptions = {}): Promise<RewardModule> {
  checkModuleFile(path, word);
  checkArguments('loadRewardModule', options, programRules);
  checkNames('loadRewardModule', options, Object.keys(programRules));
  const { name = basename(path).replace(/\.[^.]+$/, ''), timeLimitMs = defaultTimeLimitMs } = options;
  const thread = new ModuleThread({
    path,
    script: new URL('./module-thread.ts', import.meta.url),
    data: { name },
    words: { module: word, called: 'a reward', call: 'batch' },
    failure: (message, fault) => new RewardError(message, fault === 'thread' ? 'batch' : (fault as RewardFault)),
    endsWithLateCall: true,
  });
  const limits = { timeLimitMs, tooLate: () => tooLate(name, timeLimitMs) };
  await thread.ready();
  const parts = async (items: readonly RewardItem[], { signal }: ScoreOptions = {}): Promise<RewardParts> =>
    items.length === 0 ? { total: [], parts: {} } : scored(thread.call({ items }, { ...limits, signal }));
  const dispose = () => thread.dispose();
  return {
    name,
    parts,
    score: async (items, given) => (await parts(items, given)).total,
    dispose,
    [Symbol.dispose]: dispose,
  };
}

async function scored(call: Promise<unknown>): Promise<RewardParts> {
  try {
    return (await call) as RewardParts;
  } catch (error) {
    throw error instanceof ThreadEnded ? error.cause : error;
  }
}
