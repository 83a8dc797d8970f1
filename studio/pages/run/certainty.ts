/** How far the figures of a headline may be off by chance. */
import { meanAndError, wilson } from '../../format/error-bars.ts';
import { count, short } from '../../format/numbers.ts';
import type { Curve } from '../../wire/curves.ts';

export interface Point {
  step: number;
  value: number;
}

/**
 * Of the first and the last figure. A held-out share of n examples has Wilson's 95 % interval, a held-out reward the
 * standard error of its mean; a mean over steps of training that of the steps, because responses of one step share
 * their prompts and are not independent.
 */
export function certaintyOf(
  curves: ReadonlyMap<string, Curve>,
  metric: string,
  ends: readonly [readonly Point[], readonly Point[]],
): string | undefined {
  if (metric.startsWith('train/')) {
    const [first, last] = ends.map((points) => meanAndError(points.map(({ value }) => value)));
    const steps = ends[0].length;
    return steps < 2
      ? undefined
      : `means of ${steps} steps, ±${short(first?.error)} and ±${short(last?.error)} (standard error)`;
  }
  const figures = ends.map(([point]) => ({ ...point, n: valueAt(curves, 'eval/examples', point?.step) }));
  const [first, last] = figures as [Figure, Figure];
  if (!first.n || !last.n) return undefined;
  const n = first.n === last.n ? `n = ${count(last.n)}` : `n = ${count(first.n)} and ${count(last.n)}`;
  if (metric === 'eval/accuracy') return `${n}, 95 % intervals ${interval(first)} and ${interval(last)}`;
  const errors = metric === 'eval/reward' ? figures.map((each) => rewardError(curves, each as Figure)) : [];
  const [before, after] = errors;
  return before === undefined || after === undefined
    ? n
    : `${n}, ±${short(before)} and ±${short(after)} (standard error)`;
}

interface Figure extends Point {
  n: number | undefined;
}

function interval({ value, n = 0 }: Figure): string {
  const [low, high] = wilson(value, n).map((share) => Math.round(100 * share));
  return `${low}–${high} %`;
}

function rewardError(curves: ReadonlyMap<string, Curve>, { step, n = 0 }: Figure): number | undefined {
  const deviation = valueAt(curves, 'eval/reward_std', step);
  return deviation === undefined ? undefined : deviation / Math.sqrt(n);
}

function valueAt(curves: ReadonlyMap<string, Curve>, name: string, step: number | undefined): number | undefined {
  const curve = curves.get(name);
  return curve?.y[curve.step.indexOf(step ?? Number.NaN)] ?? undefined;
}
