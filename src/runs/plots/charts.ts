/** Charts other than curves: histograms, scatter plots, reliability diagrams. */
import type { Chart, Mark } from './chart.ts';
import { groupsOf, type Labels, legendOf, sized, ungrouped } from './labels.ts';
import { colors, colorsOf } from './tokens.ts';

export interface HistogramOptions extends Labels {
  /** One list, or several named lists drawn over one another. */
  values: ArrayLike<number> | Record<string, ArrayLike<number>>;
  bins?: number;
  /** Position of a vertical rule. */
  rule?: number;
  /** Shares instead of counts, to compare groups of different size. */
  share?: boolean;
}

export function histogram(options: HistogramOptions): Chart {
  const groups = isList(options.values) ? { '': options.values } : options.values;
  const lists = Object.values(groups).map((values) => Array.from(values).filter(Number.isFinite));
  const names = Object.keys(groups);
  const { rule } = options;
  const palette = colorsOf(names);
  const { start, width, count, whole } = binsOf(lists.flat(), options.bins ?? 40);
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
    x: { title: options.xLabel, whole },
    y: {
      title: options.yLabel ?? (options.share ? 'share' : 'count'),
      ends: [0, undefined],
      nice: true,
      whole: !options.share,
    },
    marks: [...marks, ...(Number.isFinite(rule) ? [{ kind: 'rule' as const, x: rule as number }] : [])],
    ...legendOf(names),
  };
}

/** Bins from the lowest to the highest value. Bins of whole numbers all cover equally many of them. */
function binsOf(values: readonly number[], most: number) {
  const [low, high] = endsOf(values);
  const whole = values.every(Number.isSafeInteger);
  if (whole) {
    const width = Math.max(1, Math.ceil((high - low + 1) / most));
    return { start: low - 0.5, width, count: Math.max(1, Math.ceil((high - low + 1) / width)), whole };
  }
  // What differs by rounding alone, such as 0.1 + 0.2 and 0.3, stands in one bin: others would be too thin to be drawn.
  const size = Math.max(Math.abs(low), Math.abs(high));
  const half = Math.max(0.5, 0.05 * size);
  if (high - low <= 1e-12 * size) return { start: low - half, width: 2 * half, count: 1, whole };
  return { start: low, width: (high - low) / most, count: most, whole };
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
  const groups = groupsOf(points);
  const palette = colorsOf(groups);
  const opacity = points.length > 400 ? 0.25 : 0.6;
  const dots = (groups.length > 0 ? groups : [ungrouped]).map(
    (name, i): Mark => ({
      kind: 'dots',
      dots: points.filter(({ group = ungrouped }) => group === name).map(({ x, y }) => ({ x, y })),
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
  const bins = options.bins.filter(
    ({ confidence, accuracy, count }) => count > 0 && Number.isFinite(confidence) && Number.isFinite(accuracy),
  );
  const most = bins.reduce((largest, { count }) => Math.max(largest, count), 1);
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
