/**
 * Evaluates a reward model on a ranked set: does it score the right response highest? Reports accuracy by subset with
 * error bars, and controlled for length and position.
 *
 *     const results = await evaluateRewardSuite({ scorer: 'checkpoints/rm/run/final', suite: 'reward-bench' });
 *     results.accuracy; results.sections.Reasoning; results.length.at_equal_length;
 */

import { existsSync } from 'node:fs';
import { anything, checkArguments, either, text } from '../../arguments.ts';
import type { ColumnNames, DatasetSpec } from '../../data/index.ts';
import { computeDealt } from '../../dist/deal.ts';
import { joinWorld } from '../../dist/world.ts';
import { UserError } from '../../errors.ts';
import { lookup } from '../../lookup.ts';
import type { LoadOptions, Precision, QuantType } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import { Random } from '../../random.ts';
import { loadRewardModel, RewardModelScorer, type RewardScorer, type StepAggregation } from '../../rewards/index.ts';
import { anyScorer } from '../../rewards/scorer.ts';
import { readSuite, suiteRows } from '../suite-rows.ts';
import { type RewardSuiteFigures, rankedFigures, type ScoredItem } from './figures.ts';
import { itemReader, type RankedItem } from './items.ts';

/** The reward model and the ranked set. */
export interface RewardSuiteOptions extends Pick<LoadOptions, 'device' | 'dtype' | 'quantType'> {
  /** A reward model's folder or hub name, or anything that scores responses. */
  scorer: string | RewardScorer;
  /** `reward-bench`, `reward-bench-2`, a file, a folder, a hub name, or rows. */
  suite: DatasetSpec;
  split?: string;
  subset?: string;
  /** Columns of pairs whose names are not recognised. */
  columns?: ColumnNames;
  /** At most this many items, sampled under the seed. */
  limit?: number;
  /** How a process model's step scores are combined. */
  steps?: StepAggregation;
  /** As in `RewardModelOptions`. A given scorer has its own. */
  precision?: Precision;
  seed?: number;
  progress?: Progress;
  signal?: AbortSignal;
}

/** The results of `evaluateRewardSuite`. */
export interface RewardSuiteResults extends RewardSuiteFigures {
  model: string;
  suite: string;
  seed: number;
  /** The quantisation of a reward model's weights; null for none. */
  quant_type: QuantType | null;
  /** The precision of a reward model's scores: `fast` if that was requested and the device supports it. */
  precision: Precision;
  /** Responses that, with their prompt, are too long for the model, which scored only their ends. */
  truncated: number;
}

const known: Readonly<Record<string, { repo: string; split: string; without?: RegExp }>> = {
  // Files named "raw-…" hold the rows before filtering.
  'reward-bench': { repo: 'allenai/reward-bench', split: 'all', without: /(^|\/)raw-/ },
  'reward-bench-2': { repo: 'allenai/reward-bench-2', split: 'test' },
};

/** The names of the known ranked sets. */
export const knownRankedSuites: readonly string[] = Object.keys(known);

const itemsAtOnce = 64;

/** Scores every response of a ranked set; `scored` has the items with their scores. */
export async function evaluateRewardSuite(
  options: RewardSuiteOptions,
): Promise<RewardSuiteResults & { readonly scored: readonly ScoredItem[] }> {
  checkArguments('evaluateRewardSuite', options, { scorer: either(text, anyScorer), suite: anything }, [
    'scorer',
    'suite',
  ]);
  const { suite, seed = 42, steps, device, dtype, quantType, precision, progress } = options;
  const items = await openItems(options);
  const owned = typeof options.scorer === 'string';
  const scorer =
    typeof options.scorer === 'string'
      ? await loadRewardModel(options.scorer, { steps, device, dtype, quantType, precision, progress })
      : options.scorer;
  try {
    const { scored, truncated } = await scoreItems(scorer, items, options);
    const model = typeof options.scorer === 'string' ? options.scorer : scorer.name;
    const name = typeof suite === 'string' ? suite : 'the rows given';
    const how =
      scorer instanceof RewardModelScorer
        ? { quant_type: scorer.model.decoder.quantType, precision: scorer.precision }
        : { quant_type: null, precision: 'exact' as const };
    const results: RewardSuiteResults = { model, suite: name, seed, ...how, truncated, ...rankedFigures(scored, seed) };
    return Object.defineProperty(results, 'scored', { value: scored }) as never;
  } finally {
    if (owned) scorer.dispose?.();
  }
}

async function openItems({ suite, limit, seed = 42, progress, ...asked }: RewardSuiteOptions): Promise<RankedItem[]> {
  const set = typeof suite === 'string' && !existsSync(suite) ? lookup(known, suite.toLowerCase()) : undefined;
  const name = typeof suite === 'string' ? suite : 'the rows given';
  const { split = set?.split, subset } = asked;
  const rows = await suiteRows(set?.repo ?? suite, {
    ...{ split, subset, progress },
    without: set?.without,
    isKnown: set !== undefined,
  });
  const items = await readSuite(rows, name, itemReader(name, asked.columns));
  if (limit === undefined || limit >= items.length) return items;
  const order = Array.from(items, (_, i) => i);
  const kept = new Random('ranked limit', seed).sample(order, limit).sort((a, b) => a - b);
  return kept.map((i) => items[i] as RankedItem);
}

async function scoreItems(
  scorer: RewardScorer,
  items: readonly RankedItem[],
  { progress, signal }: RewardSuiteOptions,
): Promise<{ scored: ScoredItem[]; truncated: number }> {
  const bar = progress?.start('scoring', items.length, 'items');
  const parts = Array.from({ length: Math.ceil(items.length / itemsAtOnce) }, (_, i) =>
    items.slice(i * itemsAtOnce, (i + 1) * itemsAtOnce),
  );
  let cut = 0;
  const onTruncated = () => {
    cut++;
  };
  const score = async (part: readonly RankedItem[]): Promise<number[][]> => {
    signal?.throwIfAborted();
    const asked = part.flatMap(({ prompt, responses }) => responses.map((response) => ({ prompt, response })));
    const scores = await scorer.score(asked, { signal, onTruncated });
    if (scores.length !== asked.length || !scores.every(Number.isFinite))
      throw new UserError(`${scorer.name} gave scores that are not numbers: its responses cannot be ranked.`);
    bar?.advance(part.length);
    return part.map(({ responses }) => scores.splice(0, responses.length));
  };
  try {
    const world = await joinWorld();
    const scores = (await computeDealt(world, parts, charactersOf, score)).flat();
    const truncated = (await world.gather(cut)).reduce((sum, count) => sum + count, 0);
    return { scored: items.map((item, i) => ({ ...item, scores: scores[i] as number[] })), truncated };
  } finally {
    bar?.done();
  }
}

const charactersOf = (part: readonly RankedItem[]) =>
  part.reduce((sum, { responses }) => sum + responses.reduce((all, { length }) => all + length, 0), 0);
