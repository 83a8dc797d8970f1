/** Line charts: the curves of a run, of several methods, of a figure. */
import type { Chart, Mark } from './chart.ts';
import { type Labels, legendOf, sized } from './labels.ts';
import { colorsOf } from './tokens.ts';

export interface Series {
  name: string;
  x: readonly number[];
  y: readonly number[];
}

export interface LineOptions extends Labels {
  series: readonly Series[];
  yScale?: 'linear' | 'log';
  /** Fixes the axis to 0…1, so that panels can be compared. */
  share?: boolean;
  /** Draws a moving mean over the faint raw line; by default where a series has more than 60 points. */
  smooth?: boolean;
  /** Half-width of a band around each series, by the series' name. */
  bands?: Record<string, readonly number[]>;
  /** End of the x axis, so that neighbouring panels can be compared. */
  xMax?: number;
}

/** More points than this are not told apart. */
const drawnPoints = 800;
/** Series of so few points show each. */
const fewPoints = 25;

/** A line chart of one or more series, for `toPng`. */
export function lineChart(options: LineOptions): Chart {
  const { series, share, yScale, xMax } = options;
  const lists = series.map((one) => pointsOf(one, options));
  const curves = lists.map((points) => ((options.smooth ?? points.length > 60) ? withMean(points) : points));
  const smoothed = curves.some((curve, i) => curve !== lists[i]);
  const few = series.every(({ x }) => x.length <= fewPoints);
  const names = series.map(({ name }) => name);
  const palette = colorsOf(names);
  const marks = [
    ...(options.bands ? lists.map((points, i) => bandOf(points, palette[i])) : []),
    ...(smoothed ? lists.map((points, i) => lineOf(points, palette[i], { width: 1, opacity: 0.25 })) : []),
    ...curves.map((points, i) => lineOf(points, palette[i])),
    ...(few ? curves.map((dots, i): Mark => ({ kind: 'dots', dots, color: palette[i] as string })) : []),
  ];
  const whole = lists.flat().every(({ x }) => Number.isInteger(x));
  return {
    ...sized(options),
    x: { title: options.xLabel ?? 'step', ends: [undefined, xMax], whole },
    y: {
      title: options.yLabel,
      ...(yScale === 'log' ? { log: true, nice: true } : share ? { ends: [0, 1] } : { nice: true }),
    },
    marks,
    ...legendOf(names, { line: true }),
  };
}

const lineOf = (points: readonly LinePoint[], color = '', look: { width?: number; opacity?: number } = {}): Mark => ({
  kind: 'line',
  points: thinned(points),
  color,
  ...look,
});
const bandOf = (points: readonly LinePoint[], color = ''): Mark => ({ kind: 'band', points: thinned(points), color });

interface LinePoint {
  x: number;
  y: number;
  low: number;
  high: number;
}

/** The points that can be drawn. */
function pointsOf({ name, x, y }: Series, { share, bands, yScale }: LineOptions): LinePoint[] {
  const bounded = (value: number) => (share ? Math.min(1, Math.max(0, value)) : value);
  return x.flatMap((at, i) => {
    const value = y[i] ?? Number.NaN;
    if (!Number.isFinite(at) || !Number.isFinite(value) || (yScale === 'log' && value <= 0)) return [];
    const half = bands?.[name]?.[i] || 0;
    const low = bounded(value - half);
    // A logarithmic axis has no place for a band's end below 0.
    return [{ x: at, y: value, low: yScale === 'log' && low <= 0 ? value : low, high: bounded(value + half) }];
  });
}

const thinned = (points: readonly LinePoint[]) => {
  const every = Math.ceil(points.length / drawnPoints);
  return points.filter((_, i) => i % every === 0 || i === points.length - 1);
};

const withMean = (points: readonly LinePoint[]) => {
  const means = movingMean(points.map(({ y }) => y));
  return points.map((point, i) => ({ ...point, y: means[i] as number }));
};

/** A centred mean over about a fortieth of the series. */
function movingMean(values: readonly number[]): number[] {
  const half = Math.max(2, Math.round(values.length / 80));
  const sums = [0];
  for (const value of values) sums.push((sums.at(-1) ?? 0) + value);
  return values.map((_, i) => {
    const from = Math.max(0, i - half);
    const to = Math.min(values.length, i + half + 1);
    return ((sums[to] ?? 0) - (sums[from] ?? 0)) / (to - from);
  });
}
