/**
 * Error bars and tests for accuracies: how uncertain a number is, and whether two models really differ.
 *
 *     figureOf([1, 0, 1, 1]);                                   // { value: 0.75, interval: [0.3, 0.95], by: 'wilson', … }
 *     pairedTest([1, 1, 0], [0, 1, 0]).mcnemar?.p;
 */

import { checkArgument, checkArguments, finite, list, whole } from '../arguments.ts';
import { UserError } from '../errors.ts';
import { Random } from '../random.ts';
import { wilson } from '../rewards/error-analysis.ts';
import { quantile } from './summary.ts';

/** A mean over questions with its 95 % interval. */
export interface Figure {
  value: number;
  interval: [number, number];
  /** `wilson` for questions that are right or wrong, `bootstrap` if scores lie between 0 and 1. */
  by: 'wilson' | 'bootstrap';
  /** Number of questions. */
  questions: number;
}

/** Settings of the bootstrap. */
export interface BootstrapOptions {
  /** Default 1000. */
  resamples?: number;
  seed?: number;
}

/** Refuses lists that are not numbers of equal count, which would give NaN. */
function checkScores(lists: Record<string, readonly number[] | undefined>): void {
  const given = Object.entries(lists).filter((entry): entry is [string, readonly number[]] => entry[1] !== undefined);
  for (const [name, values] of given) checkArgument(name, values, list(finite));
  if (new Set(given.map(([, { length }]) => length)).size > 1)
    throw new UserError(
      `One number for each question: ${given.map(([name, { length }]) => `${name} has ${length}`).join(', ')}.`,
    );
}

/**
 * The mean of the questions' scores. With weights it is Σ w·score / Σ w, for example the share of instructions followed
 * if a question has several.
 */
export function figureOf(
  scores: readonly number[],
  weights?: readonly number[],
  options: BootstrapOptions = {},
): Figure {
  checkScores({ scores, weights });
  const value = weightedMean(scores, weights);
  const questions = scores.length;
  if (weights === undefined && scores.every(isBinary)) {
    const right = scores.reduce((sum, score) => sum + score, 0);
    return { value, interval: wilson(right, questions), by: 'wilson', questions };
  }
  const means = resampled(questions, (picked) => weightedMean(scores, weights, picked), options);
  return { value, interval: middle(means), by: 'bootstrap', questions };
}

/** The difference between two models on the same questions. */
export interface PairedTest {
  /** The first model's value minus the second's. */
  difference: number;
  /** 95 %, by a paired bootstrap over questions (Efron and Tibshirani 1993). */
  interval: [number, number];
  /** Twice the share of resamples on the other side of zero. */
  bootstrap_p: number;
  /** Exact McNemar test, only if every score is right or wrong. */
  mcnemar?: { only_first: number; only_second: number; p: number };
}

/** Compares two models question by question; `weights` as in `figureOf`. */
export function pairedTest(
  first: readonly number[],
  second: readonly number[],
  weights?: readonly number[],
  options: BootstrapOptions = {},
): PairedTest {
  checkScores({ first, second, weights });
  const differences = first.map((score, i) => score - (second[i] as number));
  const means = resampled(differences.length, (picked) => weightedMean(differences, weights, picked), options);
  const share = (test: (mean: number) => boolean) => means.filter(test).length / means.length;
  const binary = weights === undefined && first.every(isBinary) && second.every(isBinary);
  const onlyFirst = differences.filter((difference) => difference === 1).length;
  const onlySecond = differences.filter((difference) => difference === -1).length;
  return {
    difference: weightedMean(differences, weights),
    interval: middle(means),
    bootstrap_p: Math.min(
      1,
      2 *
        Math.min(
          share((mean) => mean <= 0),
          share((mean) => mean >= 0),
        ),
    ),
    ...(binary && {
      mcnemar: { only_first: onlyFirst, only_second: onlySecond, p: mcnemarExact(onlyFirst, onlySecond) },
    }),
  };
}

/**
 * The exact McNemar test (1947): if two models are equally good, each of the b + c questions that only one model gets
 * right is equally likely to be the first's or the second's: p = min(1, 2 P(X ≤ min(b, c))), X ~ Binomial(b + c, ½).
 */
export function mcnemarExact(onlyFirst: number, onlySecond: number): number {
  checkArguments('mcnemarExact', { onlyFirst, onlySecond }, { onlyFirst: whole(0), onlySecond: whole(0) });
  const n = onlyFirst + onlySecond;
  let logTerm = -n * Math.LN2;
  let tail = 0;
  for (let i = 0; i <= Math.min(onlyFirst, onlySecond); i++) {
    tail += Math.exp(logTerm);
    logTerm += Math.log((n - i) / (i + 1));
  }
  return Math.min(1, 2 * tail);
}

const isBinary = (score: number): boolean => score === 0 || score === 1;

/** Σ w·value / Σ w over the picked indices, or over all. */
function weightedMean(values: readonly number[], weights?: readonly number[], picked?: Uint32Array): number {
  const count = picked?.length ?? values.length;
  let sum = 0;
  let total = 0;
  for (let i = 0; i < count; i++) {
    const at = picked === undefined ? i : (picked[i] as number);
    const weight = weights === undefined ? 1 : (weights[at] as number);
    sum += weight * (values[at] as number);
    total += weight;
  }
  return total === 0 ? 0 : sum / total;
}

/** The statistic of questions drawn with replacement, in ascending order. */
function resampled(
  count: number,
  statistic: (picked: Uint32Array) => number,
  { resamples = 1000, seed = 1 }: BootstrapOptions,
): Float64Array {
  const random = new Random('bootstrap', seed);
  const picked = new Uint32Array(count);
  const found = Float64Array.from({ length: resamples }, () => {
    for (let i = 0; i < count; i++) picked[i] = Math.floor(random.float() * count);
    return statistic(picked);
  });
  return found.sort();
}

const middle = (sorted: Float64Array): [number, number] => [quantile(sorted, 0.025), quantile(sorted, 0.975)];
