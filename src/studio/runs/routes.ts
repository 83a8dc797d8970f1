/** Routes of runs: the list, one run, its metrics, its events, its console, and changes to it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { compareRuns } from '../../runs/catalogue/comparison.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { CompareAnswer, MetricAxis } from '../api/runs.ts';
import type { Processes } from '../commands/processes.ts';
import type { Above } from '../commands/verbs.ts';
import { type Asked, Document, get, parsed, post, type Route } from '../http/router.ts';
import type { Catalogue } from './catalogue.ts';
import { Removals, stopRun, tag } from './changes.ts';
import { consoleOf } from './console.ts';
import { runDetail } from './detail.ts';
import { streamEvents } from './events.ts';
import { finite, type MetricTables } from './metric-table.ts';
import { resumeRun } from './resume.ts';
import { runRow } from './row.ts';
import { metricSeries } from './series.ts';
import { SignalNotes } from './signal-notes.ts';

export interface RunParts {
  catalogue: Catalogue;
  tables: MetricTables;
  above: Above;
  processes: Processes;
  /** How users type attune. */
  attune: string;
}

export function runRoutes({ catalogue, tables, above, processes, attune }: RunParts): Route[] {
  const runOf = ({ params }: Asked) => catalogue.find(params.id as string);
  const fileOf = (asked: Asked, name: string) => catalogue.root.own(join(runOf(asked).path, name));
  const tableOf = (asked: Asked) => tables.of(fileOf(asked, 'metrics.jsonl'));
  const removals = new Removals(catalogue);
  const notes = new SignalNotes(above, tables);
  return [
    get('/api/runs', () => catalogue.all().map((entry) => runRow(catalogue, entry, notes))),
    get('/api/runs/:id', async (asked) =>
      runDetail(catalogue, runOf(asked), await tableOf(asked), notes, above, attune),
    ),
    get('/api/runs/:id/metrics', async (asked) => metricSeries(await tableOf(asked), metricQuery(asked.query))),
    get('/api/runs/:id/events', (asked) => streamEvents(catalogue, tables, asked)),
    get('/api/runs/:id/console', (asked) =>
      consoleOf(fileOf(asked, 'train.log'), numberOf(asked.query, 'lines', 1, 10_000) ?? 200),
    ),
    get('/api/runs/:id/report', (asked) => reportOf(fileOf(asked, 'report.html'))),
    post('/api/runs/:id/stop', (asked) => stopRun(runOf(asked))),
    post('/api/runs/:id/resume', (asked) => resumeRun(catalogue, runOf(asked), above, processes)),
    post('/api/runs/:id/tag', (asked) => tag(catalogue, runOf(asked), asked.body)),
    post('/api/delete', ({ body }) => removals.answer(body)),
    post('/api/compare', ({ body }) => compare(catalogue, body)),
  ];
}

const compareRequest = z.object({ ids: z.array(z.string()).min(1).max(50) });

function compare(catalogue: Catalogue, body: unknown): CompareAnswer {
  const entries = parsed(compareRequest, body).ids.map((id) => catalogue.find(id));
  // A name differs between any two runs and explains nothing.
  const {
    options: { run_name: _, ...options },
    metrics,
  } = compareRuns(entries.map(({ path }) => path));
  return {
    runs: entries.map((entry) => ({ id: catalogue.idOf(entry), name: entry.name })),
    options: Object.entries(options).map(([name, values]) => ({ name, values: values.map((value) => value ?? null) })),
    metrics: Object.entries(metrics).map(([name, values]) => ({ name, values: values.map(finite) })),
  };
}

function reportOf(path: string): Document {
  try {
    return new Document(readFileSync(path, 'utf8'));
  } catch {
    throw new ApiError(404, 'This run has no report yet: it is written at its end.', { code: 'not_found' });
  }
}

const axes: readonly MetricAxis[] = ['step', 'examples', 'tokens', 'time'];

function metricQuery(query: URLSearchParams) {
  const names = query.get('names');
  const x = axes.find((axis) => axis === query.get('x')) ?? 'step';
  return {
    x,
    ...(names === null || names === '' ? {} : { names: names.split(',').slice(0, 500) }),
    points: numberOf(query, 'points', 8, 20_000) ?? 1000,
    from: numberOf(query, 'from') ?? Number.NEGATIVE_INFINITY,
    to: numberOf(query, 'to') ?? Number.POSITIVE_INFINITY,
  };
}

/** A number of the query, held within its bounds; undefined where it is not given or no number. */
export function numberOf(
  query: URLSearchParams,
  name: string,
  low = Number.NEGATIVE_INFINITY,
  high = Number.POSITIVE_INFINITY,
): number | undefined {
  const text = query.get(name);
  const value = Number(text);
  return text === null || text.trim() === '' || Number.isNaN(value) ? undefined : Math.min(high, Math.max(low, value));
}
