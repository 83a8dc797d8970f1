/**
 * A weighted sum of scorers, with every part reported under its own name.
 *
 *     const scorer = sumOfRewards([{ scorer: rewardModel, weight: 1 }, { scorer: taskVerifier(), weight: 2 }]);
 */
import { UserError } from '../errors.ts';
import type { RewardItem, RewardParts } from './scorer.ts';
import { type RewardScorer, type ScoreOptions, scoreParts } from './scorer.ts';

export interface WeightedScorer {
  scorer: RewardScorer;
  /** 1 unless given. */
  weight?: number;
}

export function sumOfRewards(entries: readonly WeightedScorer[], name = 'reward'): RewardScorer {
  if (entries.length === 0) throw new UserError('A sum of rewards needs at least one reward.');
  const names = entries.map(({ scorer }) => scorer.name);
  const twice = names.find((each, i) => names.indexOf(each) !== i);
  if (twice !== undefined) throw new UserError(`Two rewards are called "${twice}"; give each a name of its own.`);
  const parts = async (items: readonly RewardItem[], options?: ScoreOptions): Promise<RewardParts> => {
    const total = new Array<number>(items.length).fill(0);
    const all: Record<string, number[]> = {};
    // One after another: two models on one device would only wait for each other.
    for (const { scorer, weight = 1 } of entries) {
      const scored = await scoreParts(scorer, items, options);
      scored.total.forEach((value, i) => {
        total[i] = (total[i] as number) + weight * value;
      });
      for (const [part, values] of Object.entries(scored.parts)) {
        all[part === scorer.name ? part : `${scorer.name}/${part}`] = values;
      }
    }
    return { total, parts: all };
  };
  return {
    name,
    parts,
    score: async (items, options) => (await parts(items, options)).total,
    dispose() {
      for (const { scorer } of entries) scorer.dispose?.();
    },
  };
}
