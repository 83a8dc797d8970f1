/** The results of a reward model on a ranked set, computed from the scores alone. */
import { type Figure, figureOf } from '../statistics.ts';
import { credit, creditByOrder, isTied } from './credit.ts';
import type { RankedItem } from './items.ts';
import { fitLogistic, sigmoid } from './logistic.ts';
import { sectionsOf } from './sections.ts';
import { type TiesFigures, tiesFigures } from './ties.ts';

/** An item with the score of each response. */
export interface ScoredItem extends RankedItem {
  scores: number[];
}

/** Accuracy controlled for length. */
export interface LengthControl {
  /** The accuracy of "the longest response is best". */
  longest_is_best: number;
  /**
   * Accuracy if the right response is longer than the others on average, if it is shorter, and if it is as long; null
   * without such items.
   */
  right_longer: Figure | null;
  right_shorter: Figure | null;
  right_equal: Figure | null;
  /**
   * The accuracy on items whose responses are equally long, estimated as σ of the intercept of a logistic regression of
   * being right on the difference in length. null if there is no finite fit.
   */
  at_equal_length: { accuracy: number; interval: [number, number]; log_odds_per_100_characters: number } | null;
}

/** Accuracy controlled for position. */
export interface PositionControl {
  /** Items whose highest score is shared by several responses. */
  ties: number;
  /** The accuracy if ties go to the first, if they go to the last, and if they count as wrong. */
  first_of_equals: number;
  last_of_equals: number;
  ties_wrong: number;
  /** Best-of-k items with one right response: accuracy by its position, from 1. */
  by_place: Record<string, Figure>;
}

/** The results of `evaluateRewardSuite`. */
export interface RewardSuiteFigures {
  items: number;
  responses: number;
  /** A tie for the highest score counts as the share of right responses in it. */
  accuracy: Figure;
  /** The accuracy of a random choice. */
  chance: number;
  /** Accuracy by subset. For RewardBench 2's subset "Ties" it is the score of `ties`. */
  by_subset: Record<string, Figure>;
  /** RewardBench 2's score for questions with many right answers; null for sets without them. */
  ties: TiesFigures | null;
  /** The unweighted mean over subsets; null without subsets. */
  subset_mean: number | null;
  /** RewardBench's sections and their mean, for sets with its subsets. */
  sections: Record<string, Figure>;
  section_mean: number | null;
  length: LengthControl;
  position: PositionControl;
}

/** All results. */
export function rankedFigures(items: readonly ScoredItem[], seed = 42): RewardSuiteFigures {
  const credits = items.map(credit);
  const figure = (places: readonly number[], weights?: readonly number[]) =>
    figureOf(
      places.map((i) => credits[i] as number),
      weights,
      { seed },
    );
  const named = [...Map.groupBy(items.keys(), (i) => items[i]?.subset)].filter((entry) => entry[0] !== undefined);
  const ties = tiesFigures(items, seed) ?? null;
  const subsets = named.map(
    ([name, places]) => [name as string, name === 'Ties' && ties !== null ? ties.score : figure(places)] as const,
  );
  const sections = Object.entries(sectionsOf(items.map(({ subset }) => subset)));
  const sectionFigures = sections.map(([name, { places, weights }]) => {
    const even = weights.every((weight) => weight === 1);
    return [name, figure(places, even ? undefined : weights)] as const;
  });
  return {
    items: items.length,
    responses: items.reduce((sum, { responses }) => sum + responses.length, 0),
    accuracy: figure([...items.keys()]),
    chance: meanOf(items.map(({ right }) => right.filter(Boolean).length / right.length)),
    by_subset: Object.fromEntries(subsets),
    ties,
    subset_mean: subsets.length === 0 ? null : meanOf(subsets.map(([, { value }]) => value)),
    sections: Object.fromEntries(sectionFigures),
    section_mean: sectionFigures.length === 0 ? null : meanOf(sectionFigures.map(([, { value }]) => value)),
    length: lengthControl(items, credits, figure),
    position: positionControl(items, figure),
  };
}

type FigureOf = (places: readonly number[]) => Figure;

/** In characters: mean length of the right responses minus that of the others. */
export function lengthDifference({ responses, right }: RankedItem): number {
  const lengths = (wanted: boolean) => responses.filter((_, i) => right[i] === wanted).map(({ length }) => length);
  return meanOf(lengths(true)) - meanOf(lengths(false));
}

function lengthControl(items: readonly ScoredItem[], credits: readonly number[], figure: FigureOf): LengthControl {
  const differences = items.map(lengthDifference);
  const where = (test: (difference: number) => boolean) => {
    const places = [...differences.keys()].filter((i) => test(differences[i] as number));
    return places.length === 0 ? null : figure(places);
  };
  const fit = fitLogistic(differences, credits);
  const reach = 1.959964 * (fit?.interceptError ?? 0);
  return {
    longest_is_best: meanOf(
      items.map((item) => credit({ ...item, scores: item.responses.map(({ length }) => length) })),
    ),
    right_longer: where((difference) => difference > 0),
    right_shorter: where((difference) => difference < 0),
    right_equal: where((difference) => difference === 0),
    at_equal_length: fit
      ? {
          accuracy: sigmoid(fit.intercept),
          interval: [sigmoid(fit.intercept - reach), sigmoid(fit.intercept + reach)],
          log_odds_per_100_characters: 100 * fit.slope,
        }
      : null,
  };
}

function positionControl(items: readonly ScoredItem[], figure: FigureOf): PositionControl {
  const placed = [...items.keys()].filter((i) => {
    const { right = [] } = items[i] ?? {};
    return right.length > 2 && right.filter(Boolean).length === 1;
  });
  const byPlace = [...Map.groupBy(placed, (i) => (items[i]?.right.indexOf(true) as number) + 1)];
  return {
    ties: items.filter(isTied).length,
    first_of_equals: meanOf(items.map((item) => creditByOrder(item, 'first'))),
    last_of_equals: meanOf(items.map((item) => creditByOrder(item, 'last'))),
    ties_wrong: meanOf(items.map((item) => (isTied(item) ? 0 : credit(item)))),
    by_place: Object.fromEntries(byPlace.sort(([a], [b]) => a - b).map(([place, places]) => [place, figure(places)])),
  };
}

const meanOf = (values: readonly number[]) =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
