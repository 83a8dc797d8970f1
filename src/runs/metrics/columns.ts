/**
 * A run's metrics by name instead of by step. A reader of one metric over the whole run touches only that metric.
 *
 *     columnsOf(run.metrics()).column('train/reward').values;
 */
import type { MetricRow } from './metrics.ts';

/** One metric at the steps that logged it. Non-finite values are omitted. */
export interface MetricColumn {
  steps: readonly number[];
  values: readonly number[];
}

export interface MetricColumns {
  names: readonly string[];
  /** Empty for a metric that was never logged. */
  column(name: string): MetricColumn;
}

/** Builds each column at its first use. */
export function columnsOf(rows: readonly MetricRow[]): MetricColumns {
  const made = new Map<string, MetricColumn>();
  return {
    // A run logs the same names throughout, and its newest rows include those of its evaluations.
    names: [...new Set(rows.slice(-100).flatMap((row) => Object.keys(row)))],
    column(name) {
      let column = made.get(name);
      if (column === undefined) {
        const found = rows.filter((row) => Number.isFinite(row[name]));
        column = { steps: found.map(({ step }) => step), values: found.map((row) => row[name] as number) };
        made.set(name, column);
      }
      return column;
    },
  };
}
