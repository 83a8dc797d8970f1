/**
 * Charts as data: each function returns a Vega-Lite view, `grid` arranges several, `plots.ts` draws them.
 *
 *     await toPng(grid([histogram({ title: 'Reward', values }), scatter({ title: 'Length', points })], { columns: 2 }));
 */

import { colors, colorsOf } from './tokens.ts';

/** A Vega-Lite view. Kept loose: the library's own type takes the compiler seconds to check. */
export type Chart = Record<string, unknown>;

interface Labels {
  title?: string;
  xLabel?: string;
  yLabel?: string;
  width?: number;
  height?: number;
}

const defaultWidth = 380;
const sized = ({ title, width = defaultWidth, height = 240 }: Labels): Chart => ({
  ...(title ? { title } : {}),
  ...{ width, height },
});
/** A legend below that is no wider than the chart, so that the chart is not drawn small beside it: about 7 px a letter and 40 a sign. */
const legendOf = (names: readonly string[], { width = defaultWidth }: Labels): Chart => ({
  columns: Math.max(1, Math.floor(width / (40 + 7 * Math.max(...names.map((name) => name.length))))),
});
const quantitative = (field: string, title: string | null, extra: Chart = {}): Chart => ({
  field,
  type: 'quantitative',
  title,
  ...extra,
});
/** Axes fit the data: a loss between 0.61 and 0.69 must not look flat. */
const fitted: Chart = { scale: { zero: false, nice: true } };

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

const drawnPoints = 800;

/** A line chart of one or more series, for `toPng`. */
export function lineChart(options: LineOptions): Chart {
  const rows: Chart[] = [];
  const bounded = (value: number) => (options.share ? Math.min(1, Math.max(0, value)) : value);
  let smoothed = false;
  for (const series of options.series) {
    const finite = series.x.flatMap((x, i) => {
      const y = series.y[i] ?? Number.NaN;
      const half = options.bands?.[series.name]?.[i] ?? 0;
      return Number.isFinite(y) && (options.yScale !== 'log' || y > 0)
        ? [{ x, y, low: bounded(y - half), high: bounded(y + half) }]
        : [];
    });
    const isSmooth = options.smooth ?? finite.length > 60;
    smoothed ||= isSmooth;
    const mean = isSmooth ? movingMean(finite.map((row) => row.y)) : finite.map((row) => row.y);
    const every = Math.max(1, Math.ceil(finite.length / drawnPoints));
    for (const [i, row] of finite.entries()) {
      if (i % every === 0 || i === finite.length - 1) rows.push({ ...row, mean: mean[i], series: series.name });
    }
  }
  const names = options.series.map((series) => series.name);
  const tiny = rows.every((row) => Math.abs(row.y as number) < 1e-3);
  const y = (field: string) =>
    quantitative(field, options.yLabel ?? null, {
      ...(options.yScale === 'log'
        ? { scale: { type: 'log' } }
        : options.share
          ? { scale: { domain: [0, 1] } }
          : fitted),
      axis: { tickCount: 6, ...(tiny ? { format: '.2~e', labelExpr: "datum.value === 0 ? '0' : datum.label" } : {}) },
    });
  const few = options.series.every((series) => series.x.length <= 25);
  const color = {
    field: 'series',
    type: 'nominal',
    title: null,
    scale: { domain: names, range: colorsOf(names) },
    legend: names.length > 1 ? legendOf(names, options) : null,
  };
  const x = quantitative('x', options.xLabel ?? 'step', {
    scale: { zero: false, nice: false, ...(options.xMax === undefined ? {} : { domainMax: options.xMax }) },
    axis: { tickCount: 6 },
  });
  const layer: Chart[] = [];
  if (options.bands)
    layer.push({ mark: { type: 'area', opacity: 0.15 }, encoding: { x, y: y('low'), y2: { field: 'high' }, color } });
  if (smoothed)
    layer.push({ mark: { type: 'line', strokeWidth: 1, opacity: 0.25 }, encoding: { x, y: y('y'), color } });
  layer.push({
    mark: { type: 'line', strokeWidth: 2, point: few ? { size: 24 } : false },
    encoding: { x, y: y('mean'), color },
  });
  return { ...sized(options), data: { values: rows }, layer };
}

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
  const lists = Object.entries(groups).map(([name, values]) => ({
    name,
    values: Array.from(values).filter(Number.isFinite),
  }));
  const all = lists.flatMap((list) => list.values);
  const low = all.reduce((a, b) => Math.min(a, b), all[0] ?? 0);
  const high = all.reduce((a, b) => Math.max(a, b), all[0] ?? 1);
  const count = options.bins ?? 40;
  const width = (high - low) / count || 1;
  const rows = lists.flatMap(({ name, values }) => {
    const counts = new Array<number>(count).fill(0);
    for (const value of values) {
      const bin = Math.min(count - 1, Math.floor((value - low) / width));
      counts[bin] = (counts[bin] ?? 0) + 1;
    }
    const unit = options.share ? Math.max(1, values.length) : 1;
    return counts.map((n, i) => ({ from: low + i * width, to: low + (i + 1) * width, n: n / unit, group: name }));
  });
  const names = lists.map((list) => list.name);
  const bars = {
    mark: { type: 'bar', opacity: names.length > 1 ? 0.55 : 0.9, binSpacing: 0 },
    encoding: {
      x: quantitative('from', options.xLabel ?? null, { bin: { binned: true }, scale: { zero: false } }),
      x2: { field: 'to' },
      y: quantitative('n', options.yLabel ?? (options.share ? 'share' : 'count'), { stack: null }),
      color: {
        field: 'group',
        type: 'nominal',
        title: null,
        scale: { domain: names, range: colorsOf(names) },
        legend: names.length > 1 ? legendOf(names, options) : null,
      },
    },
  };
  const layer = [bars, ...(options.rule === undefined ? [] : [ruleAt('x', options.rule)])];
  return { ...sized(options), data: { values: rows }, layer };
}

const isList = (values: HistogramOptions['values']): values is ArrayLike<number> =>
  typeof (values as ArrayLike<number>).length === 'number';

const ruleAt = (axis: 'x' | 'y', at: number): Chart => ({
  mark: { type: 'rule', strokeDash: [5, 4], color: colors.muted },
  encoding: { [axis]: { datum: at } },
});

export interface ScatterOptions extends Labels {
  points: readonly { x: number; y: number; group?: string }[];
  /** Draws y = x. */
  diagonal?: boolean;
}

export function scatter(options: ScatterOptions): Chart {
  const values = options.points.filter((point) => Number.isFinite(point.x) && Number.isFinite(point.y));
  const groups = [...new Set(values.flatMap(({ group }) => group ?? []))];
  const marks = {
    mark: { type: 'circle', size: 22, opacity: values.length > 400 ? 0.25 : 0.6 },
    encoding: {
      x: quantitative('x', options.xLabel ?? null, fitted),
      y: quantitative('y', options.yLabel ?? null, fitted),
      color:
        groups.length > 0
          ? {
              field: 'group',
              type: 'nominal',
              title: null,
              scale: { domain: groups, range: colorsOf(groups) },
              legend: legendOf(groups, options),
            }
          : { value: colors.plain },
    },
  };
  const ends = values.flatMap((point) => [point.x, point.y]);
  const low = ends.reduce((a, b) => Math.min(a, b), ends[0] ?? 0);
  const high = ends.reduce((a, b) => Math.max(a, b), ends[0] ?? 1);
  const layer = options.diagonal ? [diagonalLine(low, high, marks.encoding), marks] : [marks];
  return { ...sized(options), data: { values }, layer };
}

/** The line y = x. It has the axes of what is drawn over it: Vega shows no title where one layer says `null`. */
const diagonalLine = (low: number, high: number, { x, y }: { x: Chart; y: Chart }): Chart => ({
  data: {
    values: [
      { x: low, y: low },
      { x: high, y: high },
    ],
  },
  mark: { type: 'line', strokeDash: [5, 4], color: colors.axis },
  encoding: { x: { ...x, field: 'x' }, y: { ...y, field: 'y' } },
});

export interface BarOptions extends Labels {
  bars: readonly {
    label: string;
    value: number;
    group?: string;
    /** Half-width of the error bar… */
    error?: number;
    /** …or its two ends. */
    interval?: readonly [number, number];
  }[];
  horizontal?: boolean;
  /** Gives each bar the colour of the line chart series of the same name. */
  colorByLabel?: boolean;
  /** Fixes the axis to 0…1, so that panels can be compared. */
  share?: boolean;
  /** How values are written on the bars (d3-format). */
  format?: string;
}

export function bars(options: BarOptions): Chart {
  // Error bars stay within what the values can be: shares within 0 and 1, times and counts above 0.
  const floor = options.bars.every(({ value }) => value >= 0) ? 0 : Number.NEGATIVE_INFINITY;
  const bounded = (value: number) => Math.min(options.share ? 1 : Number.POSITIVE_INFINITY, Math.max(floor, value));
  const values = options.bars.map((bar) => ({
    ...bar,
    low: bounded(bar.interval?.[0] ?? bar.value - (bar.error ?? 0)),
    high: bounded(bar.interval?.[1] ?? bar.value + (bar.error ?? 0)),
  }));
  const groups = [...new Set(values.flatMap(({ group }) => group ?? []))];
  const grouped = groups.length > 0;
  const category = {
    field: 'label',
    type: 'nominal',
    sort: null,
    title: options.xLabel ?? null,
    axis: {
      labelAngle: options.horizontal || new Set(values.map((bar) => bar.label)).size <= 5 ? 0 : -35,
      labelLimit: 180,
    },
  };
  // Leaves room above the tallest bar for its number.
  const tallest = options.share ? 1 : Math.max(0, ...values.map(({ high }) => high));
  const percent = options.format?.endsWith('%') ? { axis: { format: options.format } } : {};
  const top = { scale: { domainMax: 1.08 * tallest }, ...percent };
  const unit = { scale: { domain: [0, 1.08] }, axis: { values: [0, 0.2, 0.4, 0.6, 0.8, 1] } };
  const scale = options.share ? unit : options.horizontal || tallest === 0 ? {} : top;
  const amount = (field: string) => quantitative(field, options.yLabel ?? null, scale);
  const [main, cross] = options.horizontal ? (['x', 'y'] as const) : (['y', 'x'] as const);
  const offset = grouped ? { [`${cross}Offset`]: { field: 'group', sort: null } } : {};
  const shared = { [cross]: category, ...offset };
  const names = [...new Set(values.map(({ label }) => label))];
  const labels = { domain: names, range: colorsOf(names) };
  const color = grouped
    ? {
        field: 'group',
        type: 'nominal',
        sort: null,
        title: null,
        scale: { domain: groups, range: colorsOf(groups) },
      }
    : options.colorByLabel
      ? { field: 'label', type: 'nominal', scale: labels, legend: null }
      : { value: colors.plain };
  const layer: Chart[] = [{ mark: { type: 'bar' }, encoding: { ...shared, [main]: amount('value'), color } }];
  if (values.some((bar) => bar.error !== undefined || bar.interval !== undefined)) {
    layer.push({
      mark: { type: 'rule', strokeWidth: 1.5 },
      encoding: { ...shared, [main]: amount('low'), [`${main}2`]: { field: 'high' } },
    });
  }
  const place = options.horizontal ? { align: 'left', dx: 3 } : { baseline: 'bottom', dy: -2 };
  layer.push({
    mark: { type: 'text', fontSize: 10, ...place },
    encoding: {
      ...shared,
      [main]: amount('high'),
      text: { field: 'value', type: 'quantitative', format: options.format ?? '.3~g' },
    },
  });
  return { ...sized(options), data: { values }, layer };
}

export interface ReliabilityOptions extends Labels {
  /** One entry per bin: mean predicted probability, observed share, number of cases. */
  bins: readonly { confidence: number; accuracy: number; count: number }[];
}

/** Observed against predicted probability; the area of a dot is its number of cases. */
export function reliability(options: ReliabilityOptions): Chart {
  const unit = { scale: { domain: [0, 1] } };
  const values = options.bins.filter((bin) => bin.count > 0);
  const x = quantitative('confidence', options.xLabel ?? 'predicted probability', unit);
  const y = quantitative('accuracy', options.yLabel ?? 'observed share', unit);
  const layer = [
    diagonalLine(0, 1, { x, y }),
    { mark: { type: 'line', color: colors.plain, strokeWidth: 2 }, encoding: { x, y } },
    {
      mark: { type: 'circle', color: colors.plain, opacity: 0.8 },
      encoding: { x, y, size: quantitative('count', 'cases', { scale: { range: [20, 300] } }) },
    },
  ];
  return { ...sized({ width: 300, height: 300, ...options }), data: { values }, layer };
}

/** Several charts on one sheet, their plots of one size. */
export function grid(
  charts: readonly Chart[],
  options: { columns?: number; title?: string; subtitle?: string } = {},
): Chart {
  const heading = options.title
    ? { text: options.title, fontSize: 18, offset: 16, ...(options.subtitle ? { subtitle: options.subtitle } : {}) }
    : undefined;
  return {
    ...(heading ? { title: heading } : {}),
    columns: options.columns ?? (charts.length > 4 ? 3 : Math.min(2, charts.length)),
    spacing: 28,
    concat: sameSize(charts),
    resolve: { scale: { color: 'independent', size: 'independent' }, legend: { color: 'independent' } },
  };
}

/** Gives all plots the size of the largest. */
export function sameSize(charts: readonly Chart[]): Chart[] {
  const largest = (side: string) => Math.max(0, ...charts.map((chart) => Number(chart[side]) || 0));
  const [width, height] = [largest('width'), largest('height')];
  return charts.map((chart) => (chart.width === undefined ? chart : { ...chart, width, height }));
}
