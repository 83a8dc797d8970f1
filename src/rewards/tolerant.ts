/**
 * A scorer that goes on where another stops: a sample that makes it fail is scored with a fixed number.
 *
 *     tolerant(await loadRewardModule('./my-reward.ts'), { value: 0, onFailure: (error) => warnings.push(error.message) });
 */
import { type RewardItem, type RewardParts, type RewardScorer, type ScoreOptions, scoreParts } from './scorer.ts';

export interface ToleranceOptions {
  /** What a failing sample gets; 0 unless given. */
  value?: number;
  onFailure?: (error: Error, item: RewardItem) => void;
}

export function tolerant(scorer: RewardScorer, { value = 0, onFailure }: ToleranceOptions = {}): RewardScorer {
  const parts = async (items: readonly RewardItem[], options: ScoreOptions = {}): Promise<RewardParts> => {
    try {
      return await scoreParts(scorer, items, options);
    } catch {
      return oneByOne(items, options);
    }
  };
  const oneByOne = async (items: readonly RewardItem[], options: ScoreOptions): Promise<RewardParts> => {
    const scored: (RewardParts | undefined)[] = [];
    for (const item of items) {
      options.signal?.throwIfAborted();
      scored.push(
        await scoreParts(scorer, [item], options).catch((error: Error) => {
          onFailure?.(error, item);
          return undefined;
        }),
      );
    }
    const names = [...new Set(scored.flatMap((each) => Object.keys(each?.parts ?? {})))];
    return {
      total: scored.map((each) => each?.total[0] ?? value),
      parts: Object.fromEntries(names.map((name) => [name, scored.map((each) => each?.parts[name]?.[0] ?? value)])),
    };
  };
  return {
    name: scorer.name,
    parts,
    score: async (items, options) => (await parts(items, options)).total,
    dispose: () => scorer.dispose?.(),
  };
}
