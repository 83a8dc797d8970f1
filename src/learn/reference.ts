/**
 * The stored outcome of a chapter's experiment over several seeds, and whether a reader's run agrees with it. Rounding differs
 * between machines, and a policy run amplifies it, so curves are compared with the spread over seeds and not digit by digit.
 */
import { meanOf, stdOf } from '../algorithms/index.ts';
import type { Curve, Figure, Finding, Outcome } from './experiments/experiment.ts';

export interface StoredCurve {
  name: string;
  x: number[];
  mean: number[];
  /** Standard deviation over seeds. */
  spread: number[];
}

export interface Reference {
  seeds: number[];
  figures: (Omit<Figure, 'curves'> & { curves: StoredCurve[] })[];
  findings: { claim: string; held: number; numbers: string[] }[];
}

/** Combines the outcomes of several seeds. */
export function referenceOf(runs: readonly { seed: number; outcome: Outcome }[]): Reference {
  const [first] = runs as [{ seed: number; outcome: Outcome }];
  return {
    seeds: runs.map(({ seed }) => seed),
    figures: first.outcome.figures.map((figure, f) => ({
      ...figure,
      curves: figure.curves.map((_, c) => overSeeds(runs.map((run) => run.outcome.figures[f]?.curves[c] as Curve))),
    })),
    findings: first.outcome.findings.map(({ claim }, i) => {
      const each = runs.map((run) => run.outcome.findings[i] as Finding);
      return { claim, held: each.filter(({ holds }) => holds).length, numbers: each.map(({ numbers }) => numbers) };
    }),
  };
}

function overSeeds(curves: readonly Curve[]): StoredCurve {
  const [first] = curves as [Curve];
  const length = Math.min(...curves.map(({ x }) => x.length));
  const at = (i: number) => curves.map(({ y }) => y[i] as number);
  const round = (value: number) => Number(value.toPrecision(5));
  return {
    name: first.name,
    x: first.x.slice(0, length),
    mean: Array.from({ length }, (_, i) => round(meanOf(at(i)))),
    spread: Array.from({ length }, (_, i) => round(stdOf(at(i)))),
  };
}

export interface Agreement {
  agrees: boolean;
  /** One sentence for the reader. */
  sentence: string;
}

/** How far a point may lie from the mean, in spreads of the whole curve. */
const WIDTH = 3;
/** The share of points that must lie within. */
const SHARE = 0.8;

/** Compares an outcome with the stored one. */
export function compareWith(reference: Reference, outcome: Outcome): Agreement {
  const curves = reference.figures.flatMap((figure, f) =>
    (figure.ofThisMachine ? [] : figure.curves).map((stored, c) => ({ stored, own: outcome.figures[f]?.curves[c] })),
  );
  const points = curves.map(({ stored, own }) => ({ name: stored.name, ...within(stored, own) }));
  const inside = points.reduce((sum, each) => sum + each.inside, 0);
  const total = points.reduce((sum, each) => sum + each.total, 0);
  const astray = points.filter((each) => each.inside < SHARE * each.total).map(({ name }) => name);
  const broken = outcome.findings.filter(
    ({ holds }, i) => !holds && reference.findings[i]?.held === reference.seeds.length,
  );
  const seeds = `${reference.seeds.length} stored seeds`;
  if (astray.length === 0 && broken.length === 0)
    return {
      agrees: true,
      sentence: `Your curves agree with the stored ones: ${inside} of ${total} points lie within the spread of the ${seeds}.`,
    };
  const what = [
    ...(astray.length > 0 ? [`${astray.join(', ')} left the spread of the ${seeds}`] : []),
    ...broken.map(({ claim, numbers }) => `“${claim}” did not hold (${numbers})`),
  ];
  return { agrees: false, sentence: `Your curves differ from the stored ones: ${what.join('; ')}.` };
}

function within(stored: StoredCurve, own: Curve | undefined): { inside: number; total: number } {
  const total = stored.mean.length;
  if (own === undefined) return { inside: 0, total };
  const range = Math.max(...stored.mean) - Math.min(...stored.mean);
  const usual = Math.sqrt(meanOf(stored.spread.map((value) => value ** 2)));
  const allowed = (i: number) => WIDTH * Math.max(usual, stored.spread[i] as number) + 0.02 * range + 1e-6;
  const inside = stored.mean.filter((mean, i) => Math.abs((own.y[i] ?? Number.NaN) - mean) <= allowed(i)).length;
  return { inside, total };
}
