/**
 * Runs that differ only by their seed, as one curve: the mean of the runs, and the standard error of that mean as a
 * band around it.
 */
import type { RunRow } from '../../../src/studio/api.ts';
import { meanAndError } from '../../format/error-bars.ts';
import type { Curve } from '../../wire/curves.ts';

export interface SeedGroup {
  /** One run, or several that differ in nothing but their seed. */
  runs: RunRow[];
  name: string;
}

/** In the order of choosing; a run without a seed stands alone. */
export function seedGroups(runs: readonly RunRow[]): SeedGroup[] {
  const groups = Map.groupBy(runs, ({ id, setup, seed }) => (seed === undefined ? id : setup));
  return [...groups.values()].map((own) => ({ runs: own, name: nameOf(own) }));
}

/** What the names begin with alike: sorting-seed-1, sorting-seed-2 → sorting; the first name where that is little. */
function nameOf(runs: readonly RunRow[]): string {
  const [first, ...rest] = runs.map(({ name }) => name) as [string, ...string[]];
  if (rest.length === 0) return first;
  const differs = [...first].findIndex((letter, i) => rest.some((name) => name[i] !== letter));
  const common = (differs < 0 ? first : first.slice(0, differs)).replace(/[-_. ]*(seed|s)?[-_. ]*$/i, '');
  return `${common.length < 2 ? first : common}, ${runs.length} seeds`;
}

export interface MeanCurve extends Curve {
  band: { low: (number | null)[]; high: (number | null)[] };
}

/**
 * The mean at every x that any of the curves has, as far as all of them reach; between its points a curve is taken as
 * straight, because the server may have thinned each at other places.
 */
export function meanCurve(curves: readonly Curve[]): MeanCurve | undefined {
  const known = curves.map(({ x, y, step }) => ({
    points: x.flatMap((at, i) => (y[i] === null ? [] : [{ x: at, y: y[i] as number, step: step[i] as number }])),
  }));
  if (known.length === 0 || known.some(({ points }) => points.length === 0)) return undefined;
  const start = Math.max(...known.map(({ points }) => points[0]?.x as number));
  const end = Math.min(...known.map(({ points }) => points.at(-1)?.x as number));
  const steps = new Map(known.flatMap(({ points }) => points.map(({ x, step }) => [x, step] as const)));
  const x = [...steps.keys()].filter((at) => at >= start && at <= end).sort((a, b) => a - b);
  const rows = known.map(({ points }) => valuesAt(points, x));
  const figures = x.map((_, i) => meanAndError(rows.map((row) => row[i] as number)));
  return {
    x,
    y: figures.map(({ mean }) => mean),
    step: x.map((at) => steps.get(at) as number),
    band: { low: figures.map(({ mean, error }) => mean - error), high: figures.map(({ mean, error }) => mean + error) },
  };
}

interface Point {
  x: number;
  y: number;
}

/** `at` is sorted and lies within the points. */
function valuesAt(points: readonly Point[], at: readonly number[]): number[] {
  let next = 0;
  return at.map((x) => {
    while ((points[next]?.x ?? Number.POSITIVE_INFINITY) < x) next++;
    const [before, after] = [points[Math.max(0, next - 1)], points[next]] as [Point, Point];
    if (after.x === x || after.x === before.x) return after.y;
    return before.y + ((after.y - before.y) * (x - before.x)) / (after.x - before.x);
  });
}
