/**
 * A weighted sum of scorers that reports every part under its own name.
 *
 *     const scorer = sumOfRewards([{ scorer: rewardModel, weight: 1 }, { scorer: taskVerifier(), weight: 2 }]);
 *
 * A part may have its own weight, which replaces its scorer's. With `{ scorer: verifier, weight: 2 }` and `partWeights:
 * { format: 0.3 }` the total is 2 · answer + 0.3 · format.
 */
import { anything, checkArgument, checkArguments, finite, list } from '../arguments.ts';
import { checkNames, suggestion, UserError } from '../errors.ts';
import type { RewardItem, RewardParts } from './scorer.ts';
import { anyScorer, type RewardScorer, type ScoreOptions, scoreParts } from './scorer.ts';

/** A scorer with its weight in a sum. */
export interface WeightedScorer {
  scorer: RewardScorer;
  /** Default 1. */
  weight?: number;
}

/** The name of a sum of rewards, and weights for single parts. */
export interface SumOptions {
  name?: string;
  /** Keyed by part, or by `scorer/part` if two scorers have a part of the same name. */
  partWeights?: Readonly<Record<string, number>>;
}

/** A scorer whose total is a weighted sum of other scorers. */
export function sumOfRewards(entries: readonly WeightedScorer[], options: SumOptions = {}): RewardScorer {
  checkNames('sumOfRewards', options, ['name', 'partWeights']);
  const { name = 'reward', partWeights = {} } = options;
  checkArgument('The rewards of a sum', entries, list(anything));
  for (const entry of entries) checkWeighted(entry);
  for (const [part, weight] of Object.entries(partWeights)) checkArgument(`partWeights.${part}`, weight, finite);
  if (entries.length === 0) throw new UserError('A sum of rewards needs at least one reward.');
  const names = entries.map(({ scorer }) => scorer.name);
  const twice = names.find((each, i) => names.indexOf(each) !== i);
  if (twice !== undefined) throw new UserError(`Two rewards are called "${twice}"; give each a name of its own.`);
  const own = (scorer: RewardScorer, part: string) => partWeights[`${scorer.name}/${part}`] ?? partWeights[part];
  let checked = false;

  const parts = async (items: readonly RewardItem[], options?: ScoreOptions): Promise<RewardParts> => {
    const total = new Array<number>(items.length).fill(0);
    const all: Record<string, number[]> = {};
    const add = (values: readonly number[], weight: number) =>
      values.forEach((value, i) => {
        total[i] = (total[i] as number) + weight * value;
      });
    let complete = items.length > 0;
    // One after another, because two models on one device would only wait for each other.
    for (const { scorer, weight = 1 } of entries) {
      const scored = await scoreParts(scorer, items, options);
      const list = Object.entries(scored.parts);
      complete &&= list.length > 0;
      if (list.some(([part]) => own(scorer, part) !== undefined))
        for (const [part, values] of list) add(values, own(scorer, part) ?? weight);
      else add(scored.total, weight);
      for (const [part, values] of list) all[part === scorer.name ? part : `${scorer.name}/${part}`] = values;
    }
    // The parts of a user's function are known only after its first call.
    if (complete && !checked) checkParts(Object.keys(partWeights), Object.keys(all));
    checked ||= complete;
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

function checkWeighted(entry: WeightedScorer): void {
  checkArguments('A reward of a sum', entry, { scorer: anyScorer, weight: finite }, ['scorer']);
  checkNames('A reward of a sum', entry, ['scorer', 'weight']);
}

function checkParts(weighted: readonly string[], there: readonly string[]): void {
  const known = there.flatMap((part) => [part, part.slice(part.indexOf('/') + 1)]);
  const odd = weighted.find((name) => !known.includes(name));
  if (odd !== undefined)
    throw new UserError(
      `A weight is given for "${odd}", but no reward has such a part.${suggestion(odd, known)} There are: ${there.join(', ')}.`,
    );
}
