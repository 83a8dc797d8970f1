/** Models on this machine: look into one, talk to it, quantise, export or serve it. */
import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import type { Job, ModelList, ModelRow } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { href, route, setQuery } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { shortModel } from '../../format/models.ts';
import { Size, Time } from '../../parts/figures.tsx';
import { JobView } from '../../parts/job.tsx';
import { Command, Empty, Waiting } from '../../parts/page-parts.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import { ModelPanel } from './model-panel.tsx';
import './models.css';

export default function Models() {
  const models = useResource<ModelList>('models', {}, { every: 15_000 });
  const busy = useSignal(false);
  const jobs = useResource<Job[]>('jobs', {}, { every: busy.value ? 1500 : 10_000 });
  const search = useRef<HTMLInputElement>(null);
  const { query } = route.value;
  useKeys('Models', [
    { keys: '/', what: 'search', run: () => search.current?.focus() },
    { keys: 'Escape', what: 'close the model', run: () => setQuery({ model: undefined }) },
  ]);
  if (!models.data) return <Waiting error={models.error} what="Looking for models …" />;
  const work = (jobs.data ?? []).filter(({ kind }) => ['quantise', 'export', 'serve'].includes(kind));
  busy.value = work.some(({ state }) => state === 'running');
  const words = (query.q ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  const rows = models.data.models.filter(
    (row) =>
      (!query.kind || row.kind === query.kind) &&
      words.every((word) =>
        `${row.name} ${row.model} ${row.architecture ?? ''} ${row.base ?? ''}`.toLowerCase().includes(word),
      ),
  );
  const open = models.data.models.find(({ model }) => model === query.model);
  const kinds = [...new Set(models.data.models.map(({ kind }) => kind))];
  return (
    <div class="page">
      <div class="spread">
        <h1>
          Models <span class="muted small">{rows.length}</span>
        </h1>
        <div class="row nowrap model-filters">
          <input
            ref={search}
            type="search"
            aria-label="Search models"
            placeholder="Search name, architecture, base"
            value={query.q ?? ''}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
          />
          <select
            aria-label="Kind"
            value={query.kind ?? ''}
            onChange={(event) => setQuery({ kind: event.currentTarget.value })}
          >
            <option value="">All kinds</option>
            {kinds.map((kind) => (
              <option key={kind} value={kind}>
                {kind}
              </option>
            ))}
          </select>
        </div>
      </div>
      {models.data.models.length === 0 ? (
        <div class="card">
          <Empty icon="models" title="No models yet">
            <p>Models of the hub are fetched when they are first named. This one is small:</p>
            <Command text={`${session.value?.attune ?? 'attune'} inspect Qwen/Qwen3-0.6B`} />
          </Empty>
        </div>
      ) : (
        <div class={open ? 'models-split open' : 'models-split'}>
          <Table
            label="Models"
            columns={columns(open !== undefined, isSmall.value)}
            total={rows.length}
            rowAt={(i) => rows[i]}
            keyOf={({ model }) => model}
            rowHeight={48}
            height={`min(${37 + 48 * Math.max(3, rows.length)}px, calc(100dvh - 150px))`}
            minWidth={isSmall.value ? 340 : open ? 420 : 760}
            onOpen={({ model }) => setQuery({ model })}
            isChosen={({ model }) => model === query.model}
          >
            <p class="empty">No model fits the search.</p>
          </Table>
          {open && (
            <ModelPanel
              key={open.model}
              row={open}
              onClose={() => setQuery({ model: undefined })}
              onJob={jobs.reload}
            />
          )}
        </div>
      )}
      {work.length > 0 && (
        <section class="stack tight">
          <h2>Work on models</h2>
          {work.map((job) => (
            <JobView key={job.id} job={job} />
          ))}
        </section>
      )}
    </div>
  );
}

/** On a phone the kind stands below the name. */
function columns(isNarrow: boolean, isPhone: boolean): Column<ModelRow>[] {
  const all: (Column<ModelRow> & { wide?: boolean })[] = [
    { title: 'Name', width: 'minmax(180px, 2fr)', cell: (row) => <Name row={row} isPhone={isPhone} /> },
    {
      title: 'Kind',
      width: '130px',
      cell: (row) => (
        <>
          <span class="tag">{row.kind}</span> {row.quantType && <span class="tag note">{row.quantType}</span>}
        </>
      ),
    },
    { title: 'Architecture', width: 'minmax(120px, 1fr)', wide: true, cell: (row) => row.architecture ?? '–' },
    { title: 'Size', width: '96px', right: true, cell: (row) => <Size value={row.bytes} /> },
    { title: 'Changed', width: '110px', right: true, wide: true, cell: (row) => <Time at={row.modified} /> },
  ];
  return all.filter(({ wide, title }) => !((isNarrow || isPhone) && wide) && !(isPhone && title === 'Kind'));
}

function Name({ row, isPhone }: { row: ModelRow; isPhone: boolean }) {
  return (
    <div class="model-name">
      <b class="cut" title={row.model}>
        {row.name}
      </b>
      <div class="small muted cut">
        {isPhone && `${row.kind}${row.quantType ? ` ${row.quantType}` : ''}, `}
        {row.runId ? (
          <a href={href(['runs', row.runId])} tabIndex={-1} onClick={(event) => event.stopPropagation()}>
            its run
          </a>
        ) : (
          row.place
        )}
        {row.base && `, on ${shortModel(row.base)}`}
      </div>
    </div>
  );
}
