/** Where the y axis ends when spikes are left out: one of them would press the rest flat. */
import type { ChartSeries } from './series.ts';

/** `far`: only spikes far above the rest; `outer`: the outermost 2 % at each end; `none`: every value is shown. */
export type Trimming = 'far' | 'outer' | 'none';

export interface Trim {
  low: number;
  high: number;
  /** The highest value of all, which may lie above the axis. */
  top: Point;
}

interface Point {
  value: number;
  step: number;
  series: ChartSeries;
}

/** undefined: nothing is left out. */
export function trimOf(series: readonly ChartSeries[], trimming: Trimming): Trim | undefined {
  const points = series.flatMap((each) =>
    each.y.flatMap((value, i): Point[] =>
      value === null || !Number.isFinite(value) ? [] : [{ value, step: each.step[i] ?? 0, series: each }],
    ),
  );
  if (trimming === 'none' || points.length < 10) return undefined;
  points.sort((a, b) => a.value - b.value);
  const values = points.map(({ value }) => value);
  const top = points.at(-1) as Point;
  if (trimming === 'far') {
    const end = highOf(values);
    return end === undefined ? undefined : { low: values[0] as number, high: end, top };
  }
  const cut = Math.ceil(0.02 * values.length);
  return { low: values[cut] as number, high: values[values.length - 1 - cut] as number, top };
}

/**
 * The highest value that is no spike, where the maximum lies more than 10 times the range of the lower 95 % above them.
 * Spikes begin at 3 times that range, so that the ordinary values above the percentile stay visible.
 */
function highOf(sorted: readonly number[]): number | undefined {
  const bulk = sorted[Math.floor(0.95 * (sorted.length - 1))] as number;
  const range = bulk - (sorted[0] as number);
  if (range <= 0 || (sorted.at(-1) as number) - bulk <= 10 * range) return undefined;
  return sorted.findLast((value) => value <= bulk + 3 * range);
}
