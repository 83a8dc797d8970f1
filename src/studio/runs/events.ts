/**
 * What happens in a run, as events: new metrics, its state, new lines of its console. The id of an event is the step of
 * its last row, so that a browser that lost the connection goes on where it was.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openRun, type RunInfo } from '../../runs/index.ts';
import type { RunEvents, RunState } from '../api/runs.ts';
import type { Asked } from '../http/router.ts';
import type { Catalogue } from './catalogue.ts';
import { Follower } from './console.ts';
import type { MetricTables } from './metric-table.ts';
import { optional } from './row.ts';

const pollMs = 500;
/** Rows that are sent at once. */
const mostRows = 1000;

export async function streamEvents(catalogue: Catalogue, tables: MetricTables, asked: Asked): Promise<void> {
  const { path } = catalogue.find(asked.params.id as string);
  const metricsPath = catalogue.root.own(join(path, 'metrics.jsonl'));
  let table = await tables.of(metricsPath);
  let sent = lastSeen(asked) ?? table.lastStep;
  let { generation } = table;
  let before = '';
  const lines = new Follower(catalogue.root.own(join(path, 'train.log')));
  const stream = asked.stream();
  while (stream.open && !asked.gone.aborted) {
    table = await tables.of(metricsPath);
    // Rows were cut off, or this is another table than before: the run goes on from an earlier step.
    const rewound = generation !== table.generation || table.lastStep < sent;
    if (rewound) sent = table.lastStep;
    generation = table.generation;
    const state = stateOf(path, table.lastStep);
    const told = JSON.stringify(state);
    if (told !== before || rewound) {
      await stream.send('state', { ...state, updated: Date.now(), ...(rewound ? { rewound } : {}) }, sent);
    }
    before = told;
    for (let rows = table.after(sent); rows.length > 0; rows = table.after(sent)) {
      const part = rows.slice(0, mostRows);
      sent = part.at(-1)?.step ?? sent;
      await stream.send('metrics', { rows: part } satisfies RunEvents['metrics'], sent);
    }
    const added = lines.next();
    if (added.length > 0) await stream.send('console', { lines: added } satisfies RunEvents['console'], sent);
    await sleep(pollMs, undefined, { signal: asked.gone }).catch(() => {});
  }
  stream.end();
}

/** The step that the client has seen: by the browser's own header, or as it asks for. */
function lastSeen({ request, query }: Asked): number | undefined {
  const given = request.headers['last-event-id'] ?? query.get('after') ?? '';
  const step = Number(given);
  return given === '' || !Number.isFinite(step) ? undefined : step;
}

function stateOf(path: string, lastStep: number): Omit<RunEvents['state'], 'updated'> {
  const run = openRun(path);
  const info: RunInfo | undefined = run.info;
  const { status } = run;
  const state: RunState = status === 'killed' ? 'crashed' : status;
  return { state, step: Math.max(info?.step ?? 0, lastStep), ...optional({ totalSteps: info?.totalSteps }) };
}
