/**
 * A line chart in characters, for a terminal:
 *
 *     0.95 ┤      ●●●●
 *          ┤   ●●●
 *     0.52 ┤●●●
 *           1        60
 */
import type { Curve } from './experiments/experiment.ts';

const marks = ['●', '▲', '■', '◆', '○', '△', '□', '◇'];

export interface TextChartOptions {
  title: string;
  width: number;
  height: number;
  /** The axes, so that two charts can be drawn alike. */
  bounds: Bounds;
}

export interface Bounds {
  x: [number, number];
  y: [number, number];
}

/** The smallest axes that hold all curves. */
export function boundsOf(curves: readonly Curve[], share = false): Bounds {
  const finite = (values: readonly number[]) => values.filter(Number.isFinite);
  const x = finite(curves.flatMap((curve) => curve.x));
  const y = finite(curves.flatMap((curve) => curve.y));
  const wide = ([low, high]: [number, number]): [number, number] =>
    low === high ? [low - 0.5, high + 0.5] : [low, high];
  return {
    x: wide([Math.min(...x), Math.max(...x)]),
    y: share ? [0, 1] : wide([Math.min(...y), Math.max(...y)]),
  };
}

/** The chart's lines, all of the same length. */
export function textChart(curves: readonly Curve[], { title, width, height, bounds }: TextChartOptions): string[] {
  const cells = Array.from({ length: height }, () => Array<string>(width).fill(' '));
  const column = (x: number) => Math.round(((x - bounds.x[0]) / (bounds.x[1] - bounds.x[0])) * (width - 1));
  const row = (y: number) => height - 1 - Math.round(((y - bounds.y[0]) / (bounds.y[1] - bounds.y[0])) * (height - 1));
  for (const [i, curve] of curves.entries()) {
    for (const [at, x] of curve.x.entries()) {
      const line = cells[Math.min(height - 1, Math.max(0, row(curve.y[at] ?? Number.NaN)))];
      if (line !== undefined && Number.isFinite(curve.y[at])) line[column(x)] = marks[i % marks.length] as string;
    }
  }
  const labels = [shortNumber(bounds.y[1]), shortNumber(bounds.y[0])];
  const margin = Math.max(...labels.map((label) => label.length));
  const lines = cells.map((line, i) => {
    const label = i === 0 ? labels[0] : i === height - 1 ? labels[1] : '';
    return `${(label as string).padStart(margin)} ┤${line.join('')}`;
  });
  const left = shortNumber(bounds.x[0]);
  const foot = `${' '.repeat(margin + 2)}${left}${shortNumber(bounds.x[1]).padStart(width - left.length)}`;
  const full = margin + 2 + width;
  return [title.slice(0, full), ...lines, foot].map((line) => line.padEnd(full));
}

/** Which mark is which curve. */
export function legend(names: readonly string[]): string {
  return names.map((name, i) => `${marks[i % marks.length]} ${name}`).join('   ');
}

/** Three significant digits. */
export function shortNumber(value: number): string {
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}
