/**
 * A run's metrics by name instead of by step: what looks at one metric over the whole run reads only that.
 *
 *     columnsOf(run.metrics()).column('train/reward').values;
 */
import type { MetricRow } from './metrics.ts';

/** One metric at the steps that logged it. Values that are not finite are left out. */
export interface MetricColumn {
  steps: readonly number[];
  values: readonly number[];
}

export interface MetricColumns {
  names: readonly string[];
  /** Empty for a metric that was never logged. */
  column(name: string): MetricColumn;
}

/** Each column is made when it is first asked for. */
export function columnsOf(rows: readonly MetricRow[]): MetricColumns {
  const made = new Map<string, MetricColumn>();
  return {
    // A run logs the same names again and again; the newest rows have those of its evaluations too.
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
