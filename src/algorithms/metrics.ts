/**
 * Metrics of a micro-batch stay on the device as detached scalars, and are read once per update. Losses divide by the
 * denominators of the whole step. A metric is therefore a micro-batch's share of a mean, or a count, and micro-batches
 * are summed. A metric whose name ends in `_max` is a maximum and combines as one.
 *
 *     const parts = microBatches.map((batch) => algorithm.loss(batch, options, totals));
 *     combineMetrics(parts.map((part) => part.metrics)).kl
 */
import { keep, noGrad, scope, stack, type Tensor } from '../tensor/index.ts';

/** Detached scalar tensors by metric name. */
export type Metrics = Record<string, Tensor>;

/** A micro-batch's loss and metrics. */
export interface LossResult {
  /** This micro-batch's share of the step's loss. Call backward on each; the gradients add up. */
  loss: Tensor;
  metrics: Metrics;
}

/** Sums metrics over micro-batches, as tensors or numbers, without waiting for the device before `read`. */
export class MetricSums {
  readonly #numbers: Record<string, number> = Object.create(null); // a metric may be called "constructor"
  readonly #tensors = new Map<string, Tensor>();

  /** The caller still owns the tensors. */
  add(metrics: Readonly<Record<string, number | Tensor>>): void {
    scope(() =>
      noGrad(() => {
        for (const [name, value] of Object.entries(metrics)) {
          if (typeof value === 'number') this.#addNumber(name, value);
          else this.#addTensor(name, value.detach());
        }
      }),
    );
  }

  /** The sum so far, as it is stored: reading a tensor would wait for the device. */
  get(name: string): number | Tensor | undefined {
    return this.#tensors.get(name) ?? this.#numbers[name];
  }

  /** The combined metrics. Frees the sums. */
  read(): Record<string, number> {
    return this.startReading()();
  }

  /**
   * `read` in two stages: combines the sums on the device now, and returns a function that waits for them. Call that
   * once.
   */
  startReading(): () => Record<string, number> {
    const names = [...this.#tensors.keys()];
    const tensors = [...this.#tensors.values()];
    const together =
      names.length === 0
        ? null
        : scope(() => noGrad(() => keep(stack(tensors.map((value) => value.to('float64').reshape())))));
    this.dispose();
    return () => {
      const values = together?.numbers() ?? [];
      together?.dispose();
      // + 0 makes −0 a plain 0
      return { ...this.#numbers, ...Object.fromEntries(names.map((name, i) => [name, (values[i] as number) + 0])) };
    };
  }

  dispose(): void {
    for (const value of this.#tensors.values()) value.dispose();
    this.#tensors.clear();
  }

  #addNumber(name: string, value: number): void {
    const before = this.#numbers[name];
    if (before === undefined) this.#numbers[name] = value;
    else this.#numbers[name] = isMaximum(name) ? Math.max(before, value) : before + value;
  }

  #addTensor(name: string, value: Tensor): void {
    const before = this.#tensors.get(name);
    const both = before === undefined ? value : isMaximum(name) ? before.maximum(value) : before.add(value);
    this.#tensors.set(name, keep(both));
    before?.dispose();
  }
}

/**
 * The step's metrics from those of its micro-batches. With several ranks, sum the results and take the largest of each
 * `_max`.
 */
export function combineMetrics(parts: readonly Metrics[]): Record<string, number> {
  const sums = new MetricSums();
  for (const part of parts) sums.add(part);
  return sums.read();
}

/** The mean of each metric over the rows that have it, such as a step's updates or a logged row's steps. */
export function meanMetrics(rows: readonly Record<string, number>[]): Record<string, number> {
  const sums = new Map<string, { sum: number; count: number }>();
  for (const row of rows) {
    for (const [name, value] of Object.entries(row)) {
      const entry = sums.get(name) ?? { sum: 0, count: 0 };
      sums.set(name, { sum: entry.sum + value, count: entry.count + 1 });
    }
  }
  return Object.fromEntries([...sums].map(([name, { sum, count }]) => [name, sum / count]));
}

/**
 * Accuracies as exact quotients: right decisions (a tie counts half) over all decisions of the step. The shares of
 * micro-batches are rounded to float32, so their sum could read 1.00000003.
 */
export function exactAccuracies(
  metrics: Readonly<Record<string, number>>,
  decisions: number | undefined,
): Record<string, number> {
  if (decisions === undefined) return metrics;
  const exact = (value: number) => Math.round(2 * value * decisions) / (2 * decisions);
  return Object.fromEntries(
    Object.entries(metrics).map(([name, value]) => [name, /(^|_)accuracy$/.test(name) ? exact(value) : value]),
  );
}

/** Whether a metric combines by maximum instead of sum: its name ends in `_max`. */
export function isMaximum(name: string): boolean {
  return name.endsWith('_max');
}
