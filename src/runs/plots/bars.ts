/** Bar charts: one bar per name, or one per group within each name, with error bars and values. */
import type { Chart, Mark, Point } from './chart.ts';
import { groupsOf, type Labels, legendOf, sized, ungrouped } from './labels.ts';
import { type Axis, short } from './scale.ts';
import { colors, colorsOf } from './tokens.ts';

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
  /** Colours each bar like the line chart series of the same name. */
  colorByLabel?: boolean;
  /** Fixes the axis to 0…1, so that panels are comparable. */
  share?: boolean;
  /** Formats the values on the bars. */
  format?: (value: number) => string;
}

type Bar = BarOptions['bars'][number];

/** Above this the length of an axis overflows. */
const largest = 1e300;

/** A bar with its error bar and its position. */
interface Row extends Bar {
  low: number;
  high: number;
  from: number;
  middle: number;
  to: number;
}

export function bars(options: BarOptions): Chart {
  const { horizontal = false, format = short } = options;
  const names = [...new Set(options.bars.map(({ label }) => label))];
  const groups = groupsOf(options.bars);
  const least = options.bars.some(({ value }) => value < 0) ? Number.NEGATIVE_INFINITY : 0;
  const bounded = (end: number) => Math.min(options.share ? 1 : largest, Math.max(least, end));
  const rows = options.bars
    .filter(({ value }) => Math.abs(value) < largest)
    .map((bar): Row => ({ ...bar, ...spanOf(bar, bounded), ...placeOf(bar, names, groups) }));
  const colorOf = colorsIn(options, names, groups);
  const at = (across: number, value: number): Point => (horizontal ? { x: value, y: across } : { x: across, y: value });
  const marks = [
    ...rows.map((row): Mark => {
      const boxes = [{ from: at(row.from, 0), to: at(row.to, bounded(row.value)) }];
      return { kind: 'boxes', boxes, color: colorOf(row) };
    }),
    ...rows.flatMap((row): Mark[] => {
      if (row.error === undefined && row.interval === undefined) return [];
      const points = [at(row.middle, row.low), at(row.middle, row.high)];
      return [{ kind: 'line', points, color: colors.ink, width: 1.5 }];
    }),
    ...rows.map((row): Mark => {
      const below = row.value < 0;
      const side = horizontal ? (below ? 'left' : 'right') : below ? 'below' : 'above';
      // Text may extend up to the next bar.
      const room = horizontal ? {} : { room: groups.length > 0 ? row.to - row.from : 1 };
      return { kind: 'text', at: at(row.middle, below ? row.low : row.high), text: format(row.value), side, ...room };
    }),
  ];
  const category: Axis = {
    title: options.xLabel,
    // The first name is at the top.
    ends: horizontal ? [names.length, 0] : [0, names.length],
    ticks: names.map((text, i) => ({ at: i + 0.5, text })),
    grid: false,
  };
  const amount = amountAxis(options, rows);
  const [x, y] = horizontal ? [amount, category] : [category, amount];
  return { ...sized(options), x, y, marks, ...legendOf(groups) };
}

function colorsIn({ colorByLabel }: BarOptions, names: readonly string[], groups: readonly string[]) {
  if (groups.length === 0 && !colorByLabel) return () => colors.plain;
  const palette = colorsOf(groups.length > 0 ? groups : names);
  return ({ label, group }: Bar) =>
    palette[groups.length > 0 ? groups.indexOf(group ?? ungrouped) : names.indexOf(label)] ?? colors.plain;
}

/** The ends of a bar's error bar, limited to possible values: 0 to 1 for shares, above 0 for times and counts. */
function spanOf({ value, error = 0, interval }: Bar, bounded: (end: number) => number) {
  const [low, high] = (interval ?? [value - error, value + error]).map((end) =>
    bounded(Number.isFinite(end) ? end : value),
  );
  return { low: low as number, high: high as number };
}

/** The position of a bar. The i-th name covers `i` to `i + 1`. */
function placeOf({ label, group }: Bar, names: readonly string[], groups: readonly string[]) {
  const taken = groups.length > 0 ? 0.8 : 0.9;
  const width = taken / Math.max(1, groups.length);
  const from = names.indexOf(label) + (1 - taken) / 2 + width * Math.max(0, groups.indexOf(group ?? ungrouped));
  return { from, middle: from + width / 2, to: from + width };
}

/** The axis of the values, with room for the numbers beyond the longest bars. */
function amountAxis({ share, format, yLabel }: BarOptions, rows: readonly Row[]): Axis {
  const most = share ? 1 : rows.reduce((end, { high }) => Math.max(end, high), 0);
  const least = rows.reduce((end, { low }) => Math.min(end, low), 0);
  const beyond = 0.08 * (most - least) || 1;
  return {
    title: yLabel,
    ends: [least < 0 ? least - beyond : 0, most > 0 || least === 0 ? most + beyond : 0],
    count: 5,
    percent: format?.(0.5).endsWith('%') ?? false,
  };
}
