/** Computes a benchmark's results from the outcomes of its questions alone. */
import { UserError } from '../../errors.ts';
import type { CacheDtype } from '../../models/index.ts';
import { type Figure, figureOf, type PairedTest, pairedTest } from '../statistics.ts';
import type { Suite } from '../suites/open.ts';
import type { Answered, Outcome } from './asking.ts';

/** One model's results. */
export interface BenchmarkFigures {
  model: string;
  metrics: Record<string, Figure>;
  by_subject: Record<string, Record<string, Figure>>;
  /** Questions with fewer examples than requested, and those that did not fit the context and count as wrong. */
  shortened_prompts: number;
  too_long: number;
  /** Greedy responses cut off at the limit of new tokens. */
  cut_off?: number;
}

/** The results of `evaluateBenchmark`. */
export interface BenchmarkResults {
  suite: string;
  format: string;
  mode: string;
  questions: number;
  /** Questions of the set that were left out, by reason. */
  left_out: Record<string, number>;
  prompt: 'chat' | 'raw';
  shots: number;
  shots_from: string | null;
  /** The number of sampled responses per question, and the sampling settings. Omitted without samples. */
  sampling?: { samples: number; temperature: number; top_p: number };
  max_new_tokens?: number;
  /** The sampler's cache format. Omitted if it is the model's own. */
  cache_dtype?: CacheDtype;
  seed: number;
  models: BenchmarkFigures[];
  /** With two models: the first one's result minus the second's, by metric. */
  comparison?: Record<string, PairedTest>;
}

/** All results of one model. */
export function figuresOf(model: string, suite: Suite, answered: Answered, seed: number): BenchmarkFigures {
  const { outcomes } = answered;
  const subjects = Map.groupBy(outcomes.keys(), (i) => suite.questions[i]?.subject);
  const named = [...subjects].filter((entry): entry is [string, number[]] => entry[0] !== undefined);
  return {
    model,
    metrics: metricsOf(outcomes, seed),
    by_subject: Object.fromEntries(
      named
        .sort(([a], [b]) => a.localeCompare(b))
        .map(([subject, places]) => [
          subject,
          metricsOf(
            places.map((i) => outcomes[i] as Outcome),
            seed,
          ),
        ]),
    ),
    shortened_prompts: answered.shortened,
    too_long: answered.tooLong,
    ...(answered.cutOff !== undefined && { cut_off: answered.cutOff }),
  };
}

function metricsOf(outcomes: readonly Outcome[], seed: number): Record<string, Figure> {
  return Object.fromEntries(
    metricNames(outcomes).map((name) => [
      name,
      figureOf(scoresOf(outcomes, name), weightsOf(outcomes, name), { seed }),
    ]),
  );
}

const metricNames = (outcomes: readonly Outcome[]) => Object.keys(outcomes[0]?.scores ?? {});
const scoresOf = (outcomes: readonly Outcome[], name: string) => outcomes.map(({ scores }) => scores[name] as number);
const weightsOf = (outcomes: readonly Outcome[], name: string) =>
  outcomes[0]?.weights?.[name] === undefined ? undefined : outcomes.map(({ weights }) => weights?.[name] as number);

/** Tests of the difference between two models on the same questions. */
export function comparisonOf(
  first: readonly Outcome[],
  second: readonly Outcome[],
  seed: number,
): Record<string, PairedTest> {
  if (first.length !== second.length) throw new UserError('The two models were asked different questions.');
  return Object.fromEntries(
    metricNames(first).map((name) => [
      name,
      pairedTest(scoresOf(first, name), scoresOf(second, name), weightsOf(first, name), { seed }),
    ]),
  );
}
