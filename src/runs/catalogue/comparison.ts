/** Compares runs: the options that differ, and the last value of every metric. */
import { join } from 'node:path';
import { readJson } from '../json-files.ts';
import { readMetrics } from '../metrics/metrics.ts';

export interface RunComparison {
  /** Each differing option with its value in every run. */
  options: Record<string, unknown[]>;
  /** Each metric with its last value in every run. */
  metrics: Record<string, (number | undefined)[]>;
}

export function compareRuns(folders: readonly string[]): RunComparison {
  const configs = folders.map((folder) => flat(readJson<object>(join(folder, 'config.json')) ?? {}));
  const names = [...new Set(configs.flatMap((config) => Object.keys(config)))].sort();
  const options: RunComparison['options'] = {};
  for (const name of names) {
    const values = configs.map((config) => config[name]);
    if (new Set(values.map((value) => JSON.stringify(value) ?? '')).size > 1) options[name] = values;
  }
  const finals = folders.map((folder) => lastValues(join(folder, 'metrics.jsonl')));
  const metricNames = [...new Set(finals.flatMap((final) => Object.keys(final)))].sort();
  return {
    options,
    metrics: Object.fromEntries(metricNames.map((name) => [name, finals.map((final) => final[name])])),
  };
}

function flat(value: object, prefix = ''): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]) =>
      inner !== null && typeof inner === 'object' && !Array.isArray(inner)
        ? Object.entries(flat(inner as object, `${prefix}${name}.`))
        : [[`${prefix}${name}`, inner as unknown]],
    ),
  );
}

function lastValues(path: string): Record<string, number> {
  const last: Record<string, number> = {};
  for (const { step: _, time: __, ...values } of readMetrics(path)) Object.assign(last, values);
  return last;
}
