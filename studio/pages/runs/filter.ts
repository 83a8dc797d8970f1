/** Searching, filtering and sorting the list of runs. */
import type { RunRow } from '../../../src/studio/api.ts';

export type RunSort = 'name' | 'kind' | 'model' | 'state' | 'step' | 'metric' | 'bytes' | 'updated';

export interface RunFilter {
  /** Words that must all occur; `#word` is a tag. */
  text: string;
  kind: string;
  state: string;
  /** The metric of the Result column; a run's own where it is empty. */
  metric?: string;
  sort: RunSort;
  dir: 'asc' | 'desc';
}

export function filterRuns(runs: readonly RunRow[], { text, kind, state, metric, sort, dir }: RunFilter): RunRow[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = runs.filter(
    (run) =>
      (kind === '' || run.kind === kind) &&
      (state === '' || run.state === state) &&
      words.every((word) => has(run, word)),
  );
  const sign = dir === 'asc' ? 1 : -1;
  return found.sort(
    (a, b) => sign * compare(sortValue(a, sort, metric), sortValue(b, sort, metric)) || b.created - a.created,
  );
}

function has(run: RunRow, word: string): boolean {
  if (word.startsWith('#')) return run.tags.some((tag) => tag.toLowerCase().startsWith(word.slice(1)));
  const fields = [
    run.name,
    run.path,
    run.kind,
    run.method,
    run.model,
    run.base,
    run.dataset,
    run.task,
    run.state,
    ...run.tags,
  ];
  return fields.some((field) => field?.toLowerCase().includes(word));
}

/** The figure that the Result column shows. */
export function resultOf(run: RunRow, metric?: string): RunRow['metric'] {
  if (!metric) return run.metric;
  const value = run.last[metric];
  return typeof value === 'number' ? { name: metric, value } : undefined;
}

function sortValue(run: RunRow, sort: RunSort, metric?: string): string | number | undefined {
  switch (sort) {
    case 'metric':
      return resultOf(run, metric)?.value;
    case 'model':
      return run.base ?? run.model;
    case 'kind':
      return `${run.kind} ${run.method ?? ''}`;
    case 'updated':
      // Those that go on are all new, in the order of their starts: by the moment of their last row they would change places.
      return run.state === 'running' ? Number.MAX_SAFE_INTEGER : run.updated;
    default:
      return run[sort];
  }
}

/** What is not known sorts below everything. */
function compare(a: string | number | undefined, b: string | number | undefined): number {
  if (a === undefined || b === undefined) return Number(a !== undefined) - Number(b !== undefined);
  return typeof a === 'number' && typeof b === 'number'
    ? a - b
    : String(a).localeCompare(String(b), 'en', { numeric: true });
}
