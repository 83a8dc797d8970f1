/** One run: what it changed first, what its numbers say, then curves, config, checkpoints and console. */
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { RunDetail, RunEvents } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { go, href, route, setQuery } from '../../app/router.ts';
import { followTo, useChartView } from '../../parts/chart/view.ts';
import { Waiting } from '../../parts/page-parts.tsx';
import { useCurves } from '../../wire/curves.ts';
import { useEvents } from '../../wire/events.ts';
import { useResource } from '../../wire/resource.ts';
import { Checkpoints } from './checkpoints.tsx';
import { Config } from './config.tsx';
import { Console } from './console.tsx';
import { CurveGroups } from './curve-groups.tsx';
import { RunHead } from './head.tsx';
import './run.css';
import { Signals } from './signals.tsx';

const tabs = [
  ['curves', 'Curves'],
  ['config', 'Config'],
  ['checkpoints', 'Checkpoints'],
  ['console', 'Console'],
] as const;

export default function RunPage({ id }: { id: string }) {
  const run = useResource<RunDetail>(`runs/${id}`);
  const view = useChartView(`run-${id}`);
  const curves = useCurves({ ids: [id], axis: view.axis.value, zoom: view.zoom.value });
  const lines = useSignal<readonly string[]>([]);
  const again = useRef<{ timer: number; at: number } | undefined>(undefined);
  const read = curves.runs?.get(id);
  /** The state that the stream told last. */
  const told = useRef<RunEvents['state']['state'] | undefined>(undefined);
  useEffect(() => () => clearTimeout(again.current?.timer), []);
  /** Signals, checkpoints and totals follow the rows, a few seconds behind. Rows that come faster do not put it off. */
  const readLater = (wait: number) => {
    const at = performance.now() + wait;
    if (again.current && again.current.at <= at) return;
    clearTimeout(again.current?.timer);
    const timer = setTimeout(() => {
      again.current = undefined;
      run.reload();
    }, wait) as unknown as number;
    again.current = { timer, at };
  };
  useEvents<RunEvents>(
    `runs/${id}/events`,
    () => ({ after: read?.lastStep }),
    {
      metrics: ({ rows }) => {
        curves.add(id, rows);
        readLater(3000);
      },
      state: ({ state, rewound }) => {
        told.current = state;
        if (rewound) curves.reload();
        if (state !== run.data?.state || rewound) readLater(0);
      },
      console: ({ lines: more }) => {
        lines.value = [...lines.peek(), ...more].slice(-5000);
      },
    },
    read !== undefined,
  );
  // The server's list of runs may be a moment behind the stream: what was read is read again until both agree.
  useEffect(() => {
    if (run.data && told.current !== undefined && told.current !== run.data.state) readLater(1000);
  }, [run.data]);
  const ends = [...(read?.curves.values() ?? [])].flatMap(({ x }) => x.at(-1) ?? []);
  const newest = ends.length > 0 ? Math.max(...ends) : undefined;
  useEffect(() => {
    if (newest !== undefined) followTo(view, newest);
  }, [view, newest]);

  const tab = tabs.find(([name]) => name === route.value.query.tab)?.[0] ?? 'curves';
  useKeys('Run', [
    ...tabs.map(([name, title], i) => ({ keys: String(i + 1), what: title, run: () => setQuery({ tab: name }) })),
    { keys: 'o', what: 'its rollouts', run: () => run.data?.hasRollouts && go(['rollouts', id]) },
    { keys: 'u', what: 'all runs', run: () => go(['runs']) },
  ]);
  if (!run.data)
    return (
      <div class="page">
        <a href="#/runs">← Runs</a>
        <Waiting error={run.error} what="Reading the run …" />
      </div>
    );
  // The rows are ahead of the totals while it runs.
  const step = run.data.state === 'running' ? Math.max(run.data.step, read?.lastStep ?? 0) : run.data.step;
  return (
    <div class="page">
      <RunHead run={{ ...run.data, step }} curves={read?.curves} onChange={() => readLater(500)} />
      <Signals run={run.data} curves={read?.curves} />
      <nav class="tabs" aria-label="Parts of the run">
        {tabs.map(([name, title]) => (
          <a
            key={name}
            href={href(['runs', id], { ...route.value.query, tab: name })}
            aria-current={tab === name ? 'true' : undefined}
            onClick={(event) => {
              event.preventDefault();
              setQuery({ tab: name });
            }}
          >
            {title}
            {name === 'checkpoints' && <span class="muted tab-count">{run.data?.snapshots.length}</span>}
          </a>
        ))}
      </nav>
      {tab === 'curves' && <CurveGroups run={run.data} curves={read?.curves} error={curves.error} view={view} />}
      {tab === 'config' && <Config run={run.data} />}
      {tab === 'checkpoints' && <Checkpoints run={run.data} onChange={run.reload} />}
      {tab === 'console' && <Console id={id} more={lines} />}
    </div>
  );
}
