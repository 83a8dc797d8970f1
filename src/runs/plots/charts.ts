/** Charts of values that are not curves: histograms, points, bars, predicted against observed. */
import type { Chart, Mark } from './chart.ts';
import { type Labels, legendOf, sized } from './labels.ts';
import { colors, colorsOf } from './tokens.ts';

export interface HistogramOptions extends Labels {
  /** One list, or several by name, drawn over one another. */
  values: ArrayLike<number> | Record<string, ArrayLike<number>>;
  bins?: number;
  /** Draws a vertical rule here. */
  rule?: number;
  /** Shares instead of counts, to compare groups of different size. */
  share?: boolean;
}

export function histogram(options: HistogramOptions): Chart {
  const groups = isList(options.values) ? { '': options.values } : options.values;
  const lists = Object.values(groups).map((values) => Array.from(values).filter(Number.isFinite));
  const names = Object.keys(groups);
  const palette = colorsOf(names);
  const [low, high] = endsOf(lists.flat());
  const count = low === high ? 1 : (options.bins ?? 40);
  // A single value stands in the middle of its bin.
  const [start, width] = low === high ? [low - 0.5, 1] : [low, (high - low) / count];
  const marks = lists.map((values, i): Mark => {
    const counts = new Array<number>(count).fill(0);
    for (const value of values) {
      const bin = Math.min(count - 1, Math.floor((value - start) / width));
      counts[bin] = (counts[bin] ?? 0) + 1;
    }
    const unit = options.share ? Math.max(1, values.length) : 1;
    return {
      kind: 'boxes',
      boxes: counts.map((n, bin) => ({
        from: { x: start + bin * width, y: 0 },
        to: { x: start + (bin + 1) * width, y: n / unit },
      })),
      color: palette[i] as string,
      opacity: names.length > 1 ? 0.55 : 0.9,
    };
  });
  return {
    ...sized(options),
    x: { title: options.xLabel },
    y: { title: options.yLabel ?? (options.share ? 'share' : 'count'), nice: true },
    marks: [...marks, ...(options.rule === undefined ? [] : [{ kind: 'rule' as const, x: options.rule }])],
    ...legendOf(names),
  };
}

const isList = (values: HistogramOptions['values']): values is ArrayLike<number> =>
  typeof (values as ArrayLike<number>).length === 'number';

const endsOf = (values: readonly number[]) =>
  [
    values.reduce((a, b) => Math.min(a, b), values[0] ?? 0),
    values.reduce((a, b) => Math.max(a, b), values[0] ?? 1),
  ] as const;

export interface ScatterOptions extends Labels {
  points: readonly { x: number; y: number; group?: string }[];
  /** Draws y = x. */
  diagonal?: boolean;
}

export function scatter(options: ScatterOptions): Chart {
  const points = options.points.filter((point) => Number.isFinite(point.x) && Number.isFinite(point.y));
  const groups = [...new Set(points.flatMap(({ group }) => group ?? []))];
  const palette = colorsOf(groups);
  const opacity = points.length > 400 ? 0.25 : 0.6;
  const dots = (groups.length > 0 ? groups : [undefined]).map(
    (name, i): Mark => ({
      kind: 'dots',
      dots: points.filter(({ group }) => group === name).map(({ x, y }) => ({ x, y })),
      color: palette[i] ?? colors.plain,
      opacity,
    }),
  );
  const ends = endsOf(points.flatMap(({ x, y }) => [x, y]));
  return {
    ...sized(options),
    x: { title: options.xLabel, nice: true },
    y: { title: options.yLabel, nice: true },
    marks: options.diagonal ? [diagonal(...ends), ...dots] : dots,
    ...legendOf(groups),
  };
}

/** The line y = x. */
const diagonal = (low: number, high: number): Mark => ({
  kind: 'line',
  points: [
    { x: low, y: low },
    { x: high, y: high },
  ],
  color: colors.axis,
  dashed: true,
});

export interface ReliabilityOptions extends Labels {
  /** One entry per bin: mean predicted probability, observed share, number of cases. */
  bins: readonly { confidence: number; accuracy: number; count: number }[];
}

/** Observed against predicted probability; the area of a dot is its number of cases. */
export function reliability(options: ReliabilityOptions): Chart {
  const bins = options.bins.filter(({ count }) => count > 0);
  const most = Math.max(1, ...bins.map(({ count }) => count));
  const points = bins.map(({ confidence, accuracy, count }) => ({
    x: confidence,
    y: accuracy,
    radius: Math.sqrt(6 + 90 * (count / most)),
  }));
  return {
    ...sized({ width: 300, height: 300, ...options }),
    x: { title: options.xLabel ?? 'predicted probability', ends: [0, 1] },
    y: { title: options.yLabel ?? 'observed share', ends: [0, 1] },
    marks: [
      diagonal(0, 1),
      { kind: 'line', points, color: colors.plain },
      { kind: 'dots', dots: points, color: colors.plain, opacity: 0.8 },
    ],
  };
}
