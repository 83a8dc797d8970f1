/** Series with x values of their own, brought onto one x axis for drawing. */
import { smoothed } from '../../format/smoothing.ts';

export interface ChartSeries {
  /** What it belongs to, where several things are drawn in one panel. */
  id?: string;
  label: string;
  /** A custom property of the style sheet: --training. */
  color: string;
  x: readonly number[];
  y: readonly (number | null)[];
  /** The training step of each point. */
  step: readonly number[];
  dash?: boolean;
  /** Drawn as an area around the line. */
  band?: { low: readonly (number | null)[]; high: readonly (number | null)[] };
}

export interface Aligned {
  x: number[];
  /** The step at each x, of whichever series has a point there. */
  step: number[];
  /** Of each series the values as recorded; undefined where it has no point. */
  raw: (number | null | undefined)[][];
  /** Of each series the smoothed values. */
  smooth: (number | null | undefined)[][];
  /** High and low ends of the bands, of the series that have one, smoothed as their lines are. */
  bands: (number | null | undefined)[][];
}

/** On a logarithmic scale values of 0 and below are left out. */
export function align(series: readonly ChartSeries[], smoothing: number, log: boolean): Aligned {
  const steps = new Map<number, number>();
  for (const each of series) for (const [i, x] of each.x.entries()) steps.set(x, each.step[i] ?? x);
  const x = [...steps.keys()].sort((a, b) => a - b);
  const place = new Map(x.map((value, i) => [value, i]));
  const spread = (each: ChartSeries, values: readonly (number | null)[]) => {
    const row = new Array<number | null | undefined>(x.length).fill(undefined);
    for (const [i, at] of each.x.entries()) {
      const value = values[i] ?? null;
      row[place.get(at) as number] = log && value !== null && value <= 0 ? null : value;
    }
    return row;
  };
  const smoothly = (each: ChartSeries, values: readonly (number | null)[]) =>
    spread(each, smoothed(each.x, values, each.x.length > 12 ? smoothing : 0));
  return {
    x,
    step: x.map((at) => steps.get(at) as number),
    raw: series.map((each) => spread(each, each.y)),
    smooth: series.map((each) => smoothly(each, each.y)),
    bands: series.flatMap((each) => (each.band ? [smoothly(each, each.band.high), smoothly(each, each.band.low)] : [])),
  };
}

/** The step of a series at or before a place on the x axis; its first where it begins later. */
export function stepAt({ x, step }: Pick<ChartSeries, 'x' | 'step'>, at: number): number | undefined {
  const index = x.findLastIndex((value) => value <= at);
  return step[Math.max(0, index)];
}

/** The newest value at or before an index. */
export function valueAt(row: ArrayLike<number | null | undefined>, index: number): number | undefined {
  for (let i = Math.min(index, row.length - 1); i >= 0; i--) {
    const value = row[i];
    if (value !== null && value !== undefined) return value;
  }
  return undefined;
}

/** Ends of the y axis: shares from 0 to at least `shareTop`, the rest with a little air. */
export function rangeOf(low: number | null, high: number | null, shareTop?: number): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, shareTop ?? 1];
  if (shareTop !== undefined && low >= 0 && high <= 1) return [0, Math.min(1, Math.max(shareTop, 1.06 * high))];
  if (low === high) return [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
  const air = 0.06 * (high - low);
  return [low >= 0 && low - air < 0 ? 0 : low - air, high + air];
}
