/** Means of a metric over a few neighbouring steps, because a single step is noise. */
import type { MetricColumn } from './columns.ts';

/** The number of steps in a mean. */
export const windowSteps = 8;

/** A mean and the step at the end of its window. */
export interface WindowMean {
  mean: number;
  step: number;
}

/** The mean of the newest window, or of one that ends `back` steps earlier. */
export function recent({ steps, values }: MetricColumn, back = 0): WindowMean | undefined {
  const end = values.length - back;
  if (end < windowSteps) return undefined;
  return { mean: mean(values.slice(end - windowSteps, end)), step: steps[end - 1] as number };
}

export function earliest({ values }: MetricColumn): number | undefined {
  return values.length < windowSteps ? undefined : mean(values.slice(0, windowSteps));
}

/** Means of all windows in order. */
export function windows({ steps, values }: MetricColumn, size = windowSteps): WindowMean[] {
  return steps.slice(size - 1).map((step, i) => ({ step, mean: mean(values.slice(i, i + size)) }));
}

/** The highest mean of any window, excluding the newest `apart` steps. */
export function best(column: MetricColumn, { apart = 0, size = windowSteps } = {}): WindowMean | undefined {
  const all = windows(column, size);
  const [first, ...rest] = all.slice(0, Math.max(0, all.length - apart));
  return first && rest.reduce((top, each) => (each.mean > top.mean ? each : top), first);
}

/** The end of the last window whose mean satisfies a condition. */
export const lastWindow = (column: MetricColumn, isSo: (mean: number) => boolean) =>
  windows(column).findLast((each) => isSo(each.mean))?.step;

/**
 * The range within which the highest and the lowest of all windows may differ by chance: about 2·√(2 ln n) standard
 * errors for n means of normal noise, plus 1.5 because training checks after every step. In simulated runs with a
 * constant level, 120 or 600 steps long, this reports a fall in 1 of 100. The noise of a step is estimated from
 * differences of neighbours, which a trend hardly affects (von Neumann 1941). The largest difference is excluded,
 * because it may be the fall itself.
 */
export function rangeOfMeans({ values }: MetricColumn): number {
  if (values.length < 3) return 0;
  let [sum, largest] = [0, 0];
  for (let i = 1; i < values.length; i++) {
    const square = ((values[i] as number) - (values[i - 1] as number)) ** 2;
    sum += square;
    largest = Math.max(largest, square);
  }
  const error = Math.sqrt((sum - largest) / (values.length - 2) / 2 / windowSteps);
  return (2 * Math.sqrt(2 * Math.log(values.length)) + 1.5) * error;
}

function mean(values: readonly number[]): number {
  let sum = 0;
  for (const value of values) sum += value;
  return sum / values.length;
}
