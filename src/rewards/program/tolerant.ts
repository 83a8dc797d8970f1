/**
 * Keeps a run going when a reward function fails: a sample that it fails on gets a fixed reward.
 *
 *     tolerant(await loadRewardModule('./my-reward.ts'), { value: 0, onFailure: (error) => warnings.push(error.message) });
 *
 * A batch that fails as a whole (time limit, thread ended) is not retried sample by sample, so a hang costs only one
 * time limit. A function that breaks its contract (too few numbers, strings instead of numbers) still stops the run.
 */
import { call, checkArguments, finite } from '../../arguments.ts';
import { messageOf } from '../../threads/messages.ts';
import {
  anyScorer,
  type RewardItem,
  type RewardParts,
  type RewardScorer,
  type ScoreOptions,
  scoreParts,
} from '../scorer.ts';
import { RewardError } from './batch.ts';

/** The reward of a failing sample, and a callback for failures. */
export interface ToleranceOptions {
  /** The reward of a failing sample; default 0. */
  value?: number;
  /**
   * Called for the first failures, then each time their number has doubled. A reward that fails on every sample of a
   * long run is thus reported in about a dozen lines.
   */
  onFailure?: (error: RewardError) => void;
}

/** Wraps a scorer: samples on which it fails get a fixed reward. */
export function tolerant(scorer: RewardScorer, { value = 0, onFailure }: ToleranceOptions = {}): RewardScorer {
  checkArguments('tolerant', { scorer, value, onFailure }, { scorer: anyScorer, value: finite, onFailure: call }, [
    'scorer',
  ]);
  let failed = 0;
  let seen = 0;
  let told = 0;
  const tell = (errors: readonly unknown[], count: number) => {
    failed += count;
    if (failed < 2 * told) return;
    told = failed;
    const more = failed > count ? ` (${failed} of ${seen} so far)` : '';
    const noun = count === 1 ? 'sample, which gets' : 'samples, which get';
    const fault = `${count} ${noun} ${value}${more}; the first: ${messageOf(errors[0])}`;
    onFailure?.(new RewardError(`The reward "${scorer.name}" failed on ${fault}`, 'sample'));
  };
  const parts = async (items: readonly RewardItem[], options: ScoreOptions = {}): Promise<RewardParts> => {
    seen += items.length;
    try {
      return await scoreParts(scorer, items, options);
    } catch (error) {
      options.signal?.throwIfAborted();
      const fault = error instanceof RewardError ? error.fault : 'sample';
      if (fault === 'contract') throw error;
      if (fault === 'sample' && items.length > 1) return oneByOne(items, options);
      tell([error], items.length);
      return { total: items.map(() => value), parts: {} };
    }
  };
  const oneByOne = async (items: readonly RewardItem[], options: ScoreOptions): Promise<RewardParts> => {
    const scored: (RewardParts | undefined)[] = [];
    const errors: unknown[] = [];
    for (const item of items) {
      options.signal?.throwIfAborted();
      try {
        scored.push(await scoreParts(scorer, [item], options));
      } catch (error) {
        options.signal?.throwIfAborted();
        if (error instanceof RewardError && error.fault === 'contract') throw error;
        errors.push(error);
        scored.push(undefined);
        // The remaining samples would hang or fail in the same way.
        if (error instanceof RewardError && error.fault === 'batch') break;
      }
    }
    const missing = items.length - scored.length;
    if (errors.length > 0) tell(errors, errors.length + missing);
    const names = [...new Set(scored.flatMap((each) => Object.keys(each?.parts ?? {})))];
    const list = items.map((_, i) => scored[i]);
    return {
      total: list.map((each) => each?.total[0] ?? value),
      parts: Object.fromEntries(names.map((name) => [name, list.map((each) => each?.parts[name]?.[0] ?? value)])),
    };
  };
  return {
    name: scorer.name,
    parts,
    score: async (items, options) => (await parts(items, options)).total,
    dispose: () => scorer.dispose?.(),
  };
}
