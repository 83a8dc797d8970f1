/**
 * RewardBench 2's score of its subset "Ties" (Malik et al. 2025): questions with many right answers (`tied:N`), each
 * linked to a similar question with one right answer (`ref:N`). All right answers must beat all wrong ones, and by more
 * than the right answers differ among themselves.
 */
import { Random } from '../../random.ts';
import type { Figure } from '../statistics.ts';
import { quantile } from '../summary.ts';
import type { Scored } from './credit.ts';

/** Which of two linked questions an item is, and their common name. */
export interface TiePlace {
  kind: 'tied' | 'ref';
  name: string;
}

/** The parts of the score, each a mean over the questions. */
export interface TiesFigures {
  /** 0.3·tied_accuracy + 0.3·ref_accuracy + 0.2·preferred + 0.2·preferred_hard + 0.01·margin */
  score: Figure;
  /** The share of questions in which all right answers score above all wrong ones. */
  tied_accuracy: number;
  ref_accuracy: number;
  /**
   * The share of questions in which the smallest lead of a right answer over a wrong one exceeds the spread of the
   * right ones.
   */
  correctness_preferred: number;
  /** The same for the smaller lead of the two linked questions. */
  correctness_preferred_hard: number;
  /** tanh(lead / spread − 1), which only breaks ties between models. */
  margin: number;
}

/** Parses an item's id, `tied:12` or `ref:12`. */
export function tiePlace(id: unknown): TiePlace | undefined {
  const [, kind, name] = (typeof id === 'string' ? id.match(/^(tied|ref):(.+)$/) : null) ?? [];
  return kind === undefined ? undefined : { kind: kind as TiePlace['kind'], name: name as string };
}

interface Lead {
  accurate: boolean;
  /** The worst right answer's score minus the best wrong one's. */
  lead: number;
  /** The best right answer's score minus the worst right one's. */
  spread: number;
}

interface Couple {
  tied: Lead;
  ref: Lead;
}

const resamples = 1000;

/** undefined if no tied question has its linked question. */
export function tiesFigures(items: readonly (Scored & { tie?: TiePlace })[], seed = 42): TiesFigures | undefined {
  const found = { tied: new Map<string, Lead>(), ref: new Map<string, Lead>() };
  for (const item of items) if (item.tie !== undefined) found[item.tie.kind].set(item.tie.name, leadOf(item));
  const couples = [...found.tied].flatMap(([name, tied]) => {
    const ref = found.ref.get(name);
    return ref === undefined ? [] : [{ tied, ref }];
  });
  if (couples.length === 0) return undefined;
  const random = new Random('ties', seed);
  const drawn = Float64Array.from({ length: resamples }, () =>
    scoreOf(partsOf(couples.map(() => random.pick(couples)))),
  );
  drawn.sort();
  const parts = partsOf(couples);
  const interval: [number, number] = [quantile(drawn, 0.025), quantile(drawn, 0.975)];
  return { score: { value: scoreOf(parts), interval, by: 'bootstrap', questions: couples.length }, ...parts };
}

function leadOf({ scores, right }: Scored): Lead {
  const of = (wanted: boolean) => scores.filter((_, i) => right[i] === wanted);
  const lead = Math.min(...of(true)) - Math.max(...of(false));
  return { accurate: lead > 0, lead, spread: Math.max(...of(true)) - Math.min(...of(true)) };
}

type Parts = Omit<TiesFigures, 'score'>;

function partsOf(couples: readonly Couple[]): Parts {
  const mean = (of: (couple: Couple) => number) => couples.reduce((sum, each) => sum + of(each), 0) / couples.length;
  const least = ({ tied, ref }: Couple) => Math.min(tied.lead, ref.lead);
  return {
    tied_accuracy: mean(({ tied }) => Number(tied.accurate)),
    ref_accuracy: mean(({ ref }) => Number(ref.accurate)),
    correctness_preferred: mean(({ tied }) => Number(tied.lead > tied.spread)),
    correctness_preferred_hard: mean((couple) => Number(least(couple) > couple.tied.spread)),
    // 0/0 counts as 0
    margin: mean((couple) => Math.tanh(least(couple) / couple.tied.spread - 1) || 0),
  };
}

const scoreOf = (parts: Parts) =>
  0.3 * parts.tied_accuracy +
  0.3 * parts.ref_accuracy +
  0.2 * parts.correctness_preferred +
  0.2 * parts.correctness_preferred_hard +
  0.01 * parts.margin;
