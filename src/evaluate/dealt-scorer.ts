/** A reward model whose scoring is dealt over the ranks: each scores its part, and all get all scores. */
import { computeDealt } from '../dist/deal.ts';
import type { World } from '../dist/world.ts';
import type { DecidingScorer } from '../rewards/decisions.ts';
import type { RewardItem, ScoreOptions } from '../rewards/index.ts';

/** The number of responses that a rank scores in one call. */
const atOnce = 64;

export function dealtScorer(scorer: DecidingScorer, world: World): DecidingScorer {
  if (world.size === 1) return scorer;
  const dealt = async <T>(items: readonly RewardItem[], score: (part: readonly RewardItem[]) => Promise<T[]>) => {
    const parts = Array.from({ length: Math.ceil(items.length / atOnce) }, (_, i) =>
      items.slice(i * atOnce, (i + 1) * atOnce),
    );
    const characters = (part: readonly RewardItem[]) => part.reduce((sum, { response }) => sum + response.length, 0);
    return (await computeDealt(world, parts, characters, score)).flat();
  };
  return {
    notes: scorer.notes,
    score: (items: readonly RewardItem[], options?: ScoreOptions) =>
      dealt(items, (part) => scorer.score(part, options)),
    stepLogits: (items: readonly RewardItem[], options?: ScoreOptions) =>
      dealt(items, (part) => scorer.stepLogits(part, options)),
  };
}
