/** All runs: search, sort, tags; any of them overlaid, compared or deleted. */
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { ModelList, RunRow } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { route, setQuery } from '../../app/router.ts';
import { labelOf, panelsOf, sideOf } from '../../format/metrics.ts';
import { DeleteDialog } from '../../parts/delete-dialog.tsx';
import { Command, Empty, Waiting } from '../../parts/page-parts.tsx';
import { session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import RunPage from '../run/run.tsx';
import { Comparison } from './comparison.tsx';
import { filterRuns, type RunFilter, type RunSort } from './filter.ts';
import './runs.css';
import { RunsTable } from './runs-table.tsx';
import { TagDialog } from './tag-dialog.tsx';

export default function RunsOrRun() {
  const id = route.value.path[1];
  return id === undefined ? <Runs /> : <RunPage key={id} id={id} />;
}

function Runs() {
  const runs = useResource<RunRow[]>('runs', {}, { every: 4000 });
  const { query } = route.value;
  const filter: RunFilter = {
    text: query.q ?? '',
    kind: query.kind ?? '',
    state: query.state ?? '',
    metric: query.metric ?? '',
    sort: (query.sort ?? 'updated') as RunSort,
    dir: query.dir === 'asc' ? 'asc' : 'desc',
  };
  const chosen = useMemo(() => (query.with ?? '').split(',').filter(Boolean), [query.with]);
  const dialog = useSignal<'delete' | 'tag' | undefined>(undefined);
  const search = useRef<HTMLInputElement>(null);
  const choose = (ids: readonly string[]) => setQuery({ with: ids.join(',') });
  useKeys('Runs', [
    { keys: '/', what: 'search', run: () => search.current?.focus() },
    { keys: 'c', what: 'choose none', run: () => choose([]) },
  ]);
  // A run that is gone is no longer chosen.
  useEffect(() => {
    if (!runs.data) return;
    const known = new Set(runs.data.map(({ id }) => id));
    if (chosen.some((id) => !known.has(id))) choose(chosen.filter((id) => known.has(id)));
  });
  if (!runs.data) return <Waiting error={runs.error} what="Reading runs …" />;
  if (runs.data.length === 0) return <NoRuns />;
  const shown = filterRuns(runs.data, filter);
  // In the order of choosing, so that a further one does not change the colours of the rest.
  const all = runs.data;
  const rows = chosen.flatMap((id) => all.find((run) => run.id === id) ?? []);
  return (
    <div class="page">
      <div class="spread">
        <h1>
          Runs{' '}
          <span class="muted small">
            {shown.length === runs.data.length ? runs.data.length : `${shown.length} of ${runs.data.length}`}
          </span>
        </h1>
        <div class="row run-filters">
          <input
            ref={search}
            type="search"
            aria-label="Search runs"
            placeholder="Search name, model, #tag"
            value={filter.text}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
          />
          <Choice name="kind" label="Kind" value={filter.kind} rows={runs.data} />
          <Choice name="state" label="State" value={filter.state} rows={runs.data} />
          <MetricChoice value={query.metric ?? ''} rows={runs.data} />
        </div>
      </div>
      <RunsTable
        rows={shown}
        chosen={chosen}
        onChoose={choose}
        sort={filter.sort}
        dir={filter.dir}
        metric={query.metric}
        onSort={(sort, dir) => setQuery({ sort, dir })}
        isShort={rows.length > 0}
      />
      {rows.length > 0 ? (
        <Comparison
          runs={rows}
          onClear={() => choose([])}
          onTag={() => {
            dialog.value = 'tag';
          }}
          onDelete={() => {
            dialog.value = 'delete';
          }}
        />
      ) : (
        <p class="muted small wide-only">
          Tick runs to lay their curves over one another, compare their options, tag or delete them.
        </p>
      )}
      {dialog.value === 'delete' && (
        <DeleteDialog
          ask={{ ids: rows.map(({ id }) => id) }}
          onClose={() => {
            dialog.value = undefined;
          }}
          onDone={() => {
            choose([]);
            runs.reload();
          }}
        />
      )}
      {dialog.value === 'tag' && (
        <TagDialog
          runs={rows}
          onClose={() => {
            dialog.value = undefined;
          }}
          onDone={runs.reload}
        />
      )}
    </div>
  );
}

function Choice({
  name,
  label,
  value,
  rows,
}: {
  name: 'kind' | 'state';
  label: string;
  value: string;
  rows: RunRow[];
}) {
  const values = [...new Set(rows.map((run) => run[name]))].sort();
  return (
    <select aria-label={label} value={value} onChange={(event) => setQuery({ [name]: event.currentTarget.value })}>
      <option value="">{name === 'kind' ? 'All kinds' : 'All states'}</option>
      {values.map((each) => (
        <option key={each} value={each}>
          {each}
        </option>
      ))}
    </select>
  );
}

/** What the Result column shows, and is sorted by. */
function MetricChoice({ value, rows }: { value: string; rows: readonly RunRow[] }) {
  const names = panelsOf([...new Set(rows.flatMap(({ last }) => Object.keys(last)))]).flatMap(({ panels }) =>
    panels.flatMap((panel) => panel.names),
  );
  return (
    <select
      class="wide-only"
      aria-label="Result shown"
      value={value}
      onChange={(event) => setQuery({ metric: event.currentTarget.value })}
    >
      <option value="">Main result</option>
      {names.map((name) => (
        <option key={name} value={name}>
          {labelOf(name)}, {sideOf(name)}
        </option>
      ))}
    </select>
  );
}

function NoRuns() {
  const attune = session.value?.attune ?? 'attune';
  // The small model that comes with attune lies where it was installed.
  const models = useResource<ModelList>('models');
  const base = models.data?.models.find(({ kind }) => kind === 'base')?.model;
  return (
    <div class="page">
      <h1>Runs</h1>
      <div class="card">
        <Empty icon="runs" title="No runs yet">
          <p>
            There are none under {session.value?.root ?? 'this folder'}. They appear here as soon as they start. The
            demo makes some in a few minutes on a laptop:
          </p>
          <Command text={`${attune} demo`} />
          <p>or train a small model on arithmetic:</p>
          <Command text={`${attune} train policy --task chain_sum${base === undefined ? '' : ` --model ${base}`}`} />
        </Empty>
      </div>
    </div>
  );
}
