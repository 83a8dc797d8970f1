/**
 * Curves for a screen: a long column is cut into buckets, and of each the first, smallest, largest and last points are
 * kept. So a curve of 100,000 points becomes one of 1,000 that looks the same, with every peak at its place.
 */
import type { MetricAxis, MetricSeries, MetricsAnswer } from '../api/runs.ts';
import { type Column, finite, type MetricTable } from './metric-table.ts';

export interface SeriesOptions {
  names?: readonly string[];
  x?: MetricAxis;
  /** Points of a curve at most. */
  points?: number;
  /** Range on the x axis, both ends included. */
  from?: number;
  to?: number;
}

export function metricSeries(table: MetricTable, options: SeriesOptions = {}): MetricsAnswer {
  const { x = 'step', names = orderedNames(table.names) } = options;
  const axis = axisOf(table, x);
  return {
    x,
    series: names.flatMap((name) => {
      const column = table.column(name);
      return column === undefined ? [] : [seriesOf(name, column, axis, table.steps, options)];
    }),
    lastStep: table.lastStep,
    rows: table.steps.length,
  };
}

function seriesOf(
  name: string,
  { rows, values }: Column,
  axis: readonly number[],
  steps: readonly number[],
  { points = 1000, from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY }: SeriesOptions,
): MetricSeries {
  const shown: number[] = [];
  for (let i = 0; i < rows.length; i++) {
    const at = axis[rows[i] as number] as number;
    if (at >= from && at <= to) shown.push(i);
  }
  const kept = thinned(shown, values, Math.max(8, points));
  let [min, max] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (value < min) min = value;
    if (value > max) max = value;
  }
  return {
    name,
    x: kept.map((i) => axis[rows[i] as number] as number),
    y: kept.map((i) => finite(values[i])),
    step: kept.map((i) => steps[rows[i] as number] as number),
    last: finite(values.at(-1)),
    min: finite(min),
    max: finite(max),
  };
}

/** Places in `shown` to keep: of each bucket first, smallest, largest, last; what is not finite is always kept. */
export function thinned(shown: readonly number[], values: readonly number[], points: number): number[] {
  if (shown.length <= points) return [...shown];
  const buckets = Math.max(1, Math.floor(points / 4));
  const kept: number[] = [];
  for (let bucket = 0; bucket < buckets; bucket++) {
    const start = Math.floor((bucket * shown.length) / buckets);
    const end = Math.floor(((bucket + 1) * shown.length) / buckets);
    const chosen = new Set([shown[start] as number, shown[end - 1] as number]);
    let [least, most] = [start, start];
    for (let i = start; i < end; i++) {
      const value = values[shown[i] as number] as number;
      if (!(value >= (values[shown[least] as number] as number))) least = i;
      if (!(value <= (values[shown[most] as number] as number))) most = i;
    }
    chosen.add(shown[least] as number).add(shown[most] as number);
    kept.push(...[...chosen].sort((a, b) => a - b));
  }
  return kept;
}

/** The x of every row. Counters that a row lacks go on from the row before. */
function axisOf(table: MetricTable, x: MetricAxis): readonly number[] {
  if (x === 'step') return table.steps;
  const [start = 0] = table.times;
  if (x === 'time') return table.times.map((time) => (time - start) / 1000);
  const axis = new Array<number>(table.steps.length).fill(0);
  if (x === 'examples') {
    fill(axis, table.column('train/examples'), (value) => value);
    return axis;
  }
  // Tokens trained on: the rate of each step times its time.
  const rate = table.column('train/train_tokens_per_second') ?? table.column('train/tokens_per_second');
  const seconds = table.column('train/train_seconds') ?? table.column('train/step_time');
  const time = new Map(seconds?.rows.map((row, i) => [row, seconds.values[i] as number]));
  let total = 0;
  fill(axis, rate, (value, row) => {
    const made = value * (time.get(row) ?? 0);
    total += Number.isFinite(made) ? made : 0;
    return total;
  });
  return axis;
}

function fill(axis: number[], column: Column | undefined, counted: (value: number, row: number) => number): void {
  let [next, current] = [0, 0];
  for (let row = 0; row < axis.length; row++) {
    if (column !== undefined && column.rows[next] === row) {
      current = counted(column.values[next] as number, row);
      next++;
    }
    axis[row] = current;
  }
}

const first = [
  ...['eval/accuracy', 'train/accuracy', 'eval/teacher_kl', 'train/teacher_kl', 'eval/reward', 'train/reward'],
  ...['train/loss', 'eval/loss', 'train/kl'],
  ...['train/entropy', 'train/length_mean', 'train/clip_fraction', 'train/grad_norm', 'train/lr'],
];

/** Telling metrics first, then by name. */
export function orderedNames(names: readonly string[]): string[] {
  const place = (name: string) => (first.includes(name) ? first.indexOf(name) : first.length);
  return [...names].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
}
