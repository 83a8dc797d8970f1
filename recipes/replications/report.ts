/** Curves and tables over seeds: the mean, and the standard deviation as band or ±. */
import { meanOf, stdOf } from '../../src/algorithms/index.ts';
import { type Chart, lineChart } from '../../src/runs/plots/plots.ts';
import { type Fit, type Form, fitted, leastSquares, type Point } from './fits.ts';
import type { Outcomes, Table } from './study.ts';

export const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
export const spreadOf = (values: readonly number[]) => (values.length > 1 ? stdOf(values) : 0);

/** `61 % ± 3`: mean and standard deviation over seeds. */
export const share = (values: readonly number[]) =>
  `${(100 * meanOf(values)).toFixed(0)} % ± ${(100 * spreadOf(values)).toFixed(0)}`;

export const figure = (values: readonly number[], digits = 1) =>
  `${meanOf(values).toFixed(digits)} ± ${spreadOf(values).toFixed(digits)}`;

export const interval = (value: number, [low, high]: readonly [number, number], digits = 2) =>
  `${value.toFixed(digits)} (${low.toFixed(digits)} to ${high.toFixed(digits)})`;

/** Wide enough for the legends below. */
const size = { width: 520, height: 230 };

export interface Line {
  name: string;
  x: readonly number[];
  /** One list per seed. */
  runs: readonly (readonly number[])[];
}

export interface ChartLabels {
  title: string;
  xLabel: string;
  yLabel: string;
  share?: boolean;
  xMax?: number;
  yScale?: 'linear' | 'log';
}

export function chartOf(labels: ChartLabels, lines: readonly Line[]): Chart {
  const at = (runs: Line['runs'], i: number) => runs.map((run) => run[i] ?? Number.NaN).filter(Number.isFinite);
  return lineChart({
    ...size,
    ...labels,
    smooth: false,
    series: lines.map(({ name, x, runs }) => ({ name, x: [...x], y: x.map((_, i) => meanOf(at(runs, i))) })),
    bands: Object.fromEntries(lines.map(({ name, x, runs }) => [name, x.map((_, i) => spreadOf(at(runs, i)))])),
  });
}

/** The points of some conditions: √KL against what was gained over the start, for a fit. */
export function gains(outcomes: Outcomes, conditions: readonly string[], gold = 'gold'): Point[] {
  return conditions.flatMap((condition) =>
    outcomes.of(condition).flatMap(({ seed, values }) => {
      const [d, y] = [values.d as number[], values[gold] as number[]];
      return d.map((each, i) => ({ seed, d: each, gain: (y[i] as number) - (y[0] as number) })).slice(1);
    }),
  );
}

export interface NamedFit {
  name: string;
  fit: Fit;
  /** The largest d that was measured. */
  farthest: number;
}

export const fitsOf = (
  outcomes: Outcomes,
  named: readonly (readonly [string, readonly string[]])[],
  form: Form,
): NamedFit[] =>
  named.map(([name, conditions]) => {
    const points = gains(outcomes, conditions);
    return { name, fit: leastSquares(points, form), farthest: Math.max(...points.map(({ d }) => d)) };
  });

export function fitTable(fits: readonly NamedFit[], of: string): Table {
  return {
    head: [of, 'form', 'α (95 %)', 'β (95 %)', 'R²', 'peak at d'],
    rows: fits.map(({ name, fit: each }) => [
      ...[name, each.form.name, interval(each.alpha, each.alphaInterval), interval(each.beta, each.betaInterval)],
      ...[each.r2.toFixed(2), peak(each)],
    ]),
  };
}

/** Where the fitted form is highest: d = α/2β, or e^(α/β − 1); none where it only rises. */
function peak({ form, alpha, beta }: Fit): string {
  if (beta <= 0) return 'rises';
  const d = form.name.includes('log') ? Math.exp(alpha / beta - 1) : alpha / (2 * beta);
  return d > 99 ? '> 99' : d.toFixed(1);
}

/** The fitted curves, each from 0 to the largest d that was measured for it. */
export function fittedChart(labels: ChartLabels, fits: readonly NamedFit[]): Chart {
  const places = Array.from({ length: 41 }, (_, i) => i / 40);
  return lineChart({
    ...size,
    ...labels,
    smooth: false,
    series: fits.map(({ name, fit: each, farthest }) => {
      const x = places.map((place) => place * farthest);
      return { name, x, y: x.map((d) => fitted(each, d)) };
    }),
  });
}
