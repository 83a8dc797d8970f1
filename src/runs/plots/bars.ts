/** Bar charts: one bar per name, or one per group in each name, with error bars and the numbers on them. */
import type { Chart, Mark, Point } from './chart.ts';
import { type Labels, legendOf, sized } from './labels.ts';
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
  /** Gives each bar the colour of the line chart series of the same name. */
  colorByLabel?: boolean;
  /** Fixes the axis to 0…1, so that panels can be compared. */
  share?: boolean;
  /** How values are written on the bars. */
  format?: (value: number) => string;
}

type Bar = BarOptions['bars'][number];

/** A bar with its error bar and its place among the names. */
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
  const groups = [...new Set(options.bars.flatMap(({ group }) => group ?? []))];
  const rows = options.bars
    .filter(({ value }) => Number.isFinite(value))
    .map((bar): Row => ({ ...bar, ...spanOf(bar, options), ...placeOf(bar, names, groups) }));
  const colorOf = colorsIn(options, names, groups);
  const at = (across: number, value: number): Point => (horizontal ? { x: value, y: across } : { x: across, y: value });
  const marks = [
    ...rows.map((row): Mark => {
      const boxes = [{ from: at(row.from, 0), to: at(row.to, row.value) }];
      return { kind: 'boxes', boxes, color: colorOf(row) };
    }),
    ...rows.flatMap((row): Mark[] => {
      if (row.error === undefined && row.interval === undefined) return [];
      const points = [at(row.middle, row.low), at(row.middle, row.high)];
      return [{ kind: 'line', points, color: colors.ink, width: 1.5 }];
    }),
    ...rows.map((row): Mark => {
      const side = horizontal ? 'right' : row.value < 0 ? 'below' : 'above';
      return { kind: 'text', at: at(row.middle, side === 'below' ? row.low : row.high), text: format(row.value), side };
    }),
  ];
  const category: Axis = {
    title: options.xLabel,
    // The first name is at the top.
    ends: horizontal ? [names.length, 0] : [0, names.length],
    ticks: names.map((text, i) => ({ at: i + 0.5, text })),
    slanted: !horizontal && names.length > 5,
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
    palette[groups.length > 0 ? groups.indexOf(group ?? '') : names.indexOf(label)] ?? colors.plain;
}

/** The ends of a bar's error bar, which stays within what values can be: shares within 0 and 1, times and counts above 0. */
function spanOf({ value, error = 0, interval }: Bar, { bars, share }: BarOptions) {
  const least = bars.some((bar) => bar.value < 0) ? Number.NEGATIVE_INFINITY : 0;
  const most = share ? 1 : Number.POSITIVE_INFINITY;
  const bounded = (end: number) => (Number.isFinite(end) ? Math.min(most, Math.max(least, end)) : value);
  const [low, high] = interval ?? [value - error, value + error];
  return { low: bounded(low), high: bounded(high) };
}

/** Where a bar stands: its name has the place from `i` to `i + 1`. */
function placeOf({ label, group }: Bar, names: readonly string[], groups: readonly string[]) {
  const taken = groups.length > 0 ? 0.8 : 0.9;
  const width = taken / Math.max(1, groups.length);
  const from = names.indexOf(label) + (1 - taken) / 2 + width * Math.max(0, groups.indexOf(group ?? ''));
  return { from, middle: from + width / 2, to: from + width };
}

/** The axis of the values, with room for the numbers beyond the longest bars. */
function amountAxis({ share, format, yLabel }: BarOptions, rows: readonly Row[]): Axis {
  const most = share ? 1 : Math.max(0, ...rows.map(({ high }) => high));
  const least = Math.min(0, ...rows.map(({ low }) => low));
  const beyond = 0.08 * (most - least) || 1;
  const isShare = format?.(0.5).endsWith('%');
  return {
    title: yLabel,
    ends: [least < 0 ? least - beyond : 0, most > 0 || least === 0 ? most + beyond : 0],
    count: 5,
    ...(isShare ? { format } : {}),
  };
}
