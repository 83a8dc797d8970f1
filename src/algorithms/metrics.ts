/**
 * Metrics of a micro-batch stay on the device as detached scalars, and are read back once per step. A metric is its
 * micro-batch's share of the step's mean, so shares add up; one whose name ends in `_max` takes the largest instead.
 *
 *     const parts = microBatches.map((batch) => algorithm.loss(batch, options, totals));
 *     combineMetrics(parts.map((part) => part.metrics)).kl
 */
import { noGrad, scope, stack, type Tensor } from '../tensor/index.ts';

export type Metrics = Record<string, Tensor>;

export interface LossResult {
  /** This micro-batch's share of the step's loss; backward on it and add up. */
  loss: Tensor;
  metrics: Metrics;
}

/** The step's metrics from those of its micro-batches (for several ranks: sum these, and take the largest of `_max`). */
export function combineMetrics(parts: readonly Metrics[]): Record<string, number> {
  const names = [...new Set(parts.flatMap((part) => Object.keys(part)))];
  if (names.length === 0) return {};
  return scope(() =>
    noGrad(() => {
      const combined = names.map((name) => {
        const values = stack(parts.flatMap((part) => part[name] ?? []));
        return (isMaximum(name) ? values.max() : values.sum()).to('float64');
      });
      const numbers = stack(combined).numbers();
      return Object.fromEntries(names.map((name, i) => [name, numbers[i] as number]));
    }),
  );
}

export function isMaximum(name: string): boolean {
  return name.endsWith('_max');
}
