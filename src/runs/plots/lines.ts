/** Line charts: curves of a run, of several methods, of a figure. */
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
  /** Fixes the axis to 0…1, so that panels are comparable. */
  share?: boolean;
  /** Draws a moving mean over the faint raw line. Default: if a series has more than 60 points. */
  smooth?: boolean;
  /** Half-width of a band around each series, by series name. */
  bands?: Record<string, readonly number[]>;
  /** End of the x axis, so that neighbouring panels are comparable. */
  xMax?: number | undefined;
}

/** More points than this are indistinguishable. */
const drawnPoints = 800;
/** Series with at most this many points show each of them. A single point makes no line. */
const fewPoints = 25;

/** A line chart of one or more series, for `toPng`. */
export function lineChart(options: LineOptions): Chart {
  const { series, share, yScale } = options;
  const xMax = Number.isFinite(options.xMax) ? options.xMax : undefined;
  const lists = series.map((one) => pointsOf(one, { ...options, xMax }));
  const curves = lists.map((points) => ((options.smooth ?? points.length > 60) ? withMean(points) : points));
  const smoothed = curves.some((curve, i) => curve !== lists[i]);
  const names = series.map(({ name }) => name);
  const palette = colorsOf(names);
  const marks = [
    ...(options.bands ? lists.map((points, i) => bandOf(points, palette[i])) : []),
    ...(smoothed ? lists.map((points, i) => lineOf(points, palette[i], { width: 1, opacity: 0.25 })) : []),
    ...curves.map((points, i) => lineOf(points, palette[i])),
    ...curves.flatMap((dots, i): Mark[] => {
      return dots.length <= fewPoints ? [{ kind: 'dots', dots, color: palette[i] as string }] : [];
    }),
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
function pointsOf({ name, x, y }: Series, { share, bands, yScale, xMax = Number.POSITIVE_INFINITY }: LineOptions) {
  const bounded = (value: number) => (share ? Math.min(1, Math.max(0, value)) : value);
  return x.flatMap((at, i): LinePoint[] => {
    const value = y[i] ?? Number.NaN;
    if (!Number.isFinite(at) || at > xMax || !Number.isFinite(value) || (yScale === 'log' && value <= 0)) return [];
    const given = bands?.[name]?.[i] ?? 0;
    const half = Number.isFinite(given) ? Math.abs(given) : 0;
    const low = bounded(value - half);
    // A logarithmic axis cannot show a band's end below 0.
    const shown = yScale === 'log' && low <= 0 ? value : low;
    return [{ x: at, y: bounded(value), low: shown, high: bounded(value + half) }];
  });
}

/**
 * Reduces a series to about the number of points that are drawn. Keeps the lowest and the highest of each stretch, so
 * that no spike is lost.
 */
function thinned(points: readonly LinePoint[]): readonly LinePoint[] {
  if (points.length <= drawnPoints) return points;
  const stretch = Math.ceil((2 * points.length) / drawnPoints);
  const kept = new Set([0, points.length - 1]);
  for (let start = 0; start < points.length; start += stretch) {
    let [low, high] = [start, start];
    for (let i = start; i < Math.min(start + stretch, points.length); i++) {
      if ((points[i] as LinePoint).y < (points[low] as LinePoint).y) low = i;
      if ((points[i] as LinePoint).y > (points[high] as LinePoint).y) high = i;
    }
    kept.add(low).add(high);
  }
  return points.filter((_, i) => kept.has(i));
}

/**
 * The moving mean over about a fortieth of the series, centred on its points. It uses all points, but has no more
 * values than are drawn.
 */
function withMean(points: readonly LinePoint[]): LinePoint[] {
  const half = Math.max(2, Math.round(points.length / 80));
  const every = Math.ceil(points.length / (drawnPoints - 1));
  return points.flatMap((point, i) => {
    if (i % every !== 0 && i !== points.length - 1) return [];
    // Each window is summed afresh. With a running sum, one huge value would cancel out all others.
    const window = points.slice(Math.max(0, i - half), i + half + 1);
    return { ...point, y: window.reduce((sum, { y }) => sum + y, 0) / window.length };
  });
}
