/** Datasets: what one holds, its examples, and a queue to rate its pairs. */
import { useRef } from 'preact/hooks';
import type { DataList, DatasetRow } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { go, href, route, setQuery } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { Size, Time } from '../../parts/figures.tsx';
import { Command, Empty, Waiting } from '../../parts/page-parts.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import './data.css';
import { Examples } from './examples.tsx';
import { Explore } from './explore.tsx';
import { RatingQueue } from './rating-queue.tsx';

export default function Data() {
  const dataset = route.value.path[1];
  return dataset === undefined ? <Datasets /> : <Dataset key={dataset} dataset={dataset} />;
}

const rowHeight = 50;

function Datasets() {
  const list = useResource<DataList>('data');
  const search = useRef<HTMLInputElement>(null);
  const words = (route.value.query.q ?? '').toLowerCase();
  useKeys('Data', [{ keys: '/', what: 'search or name a dataset', run: () => search.current?.focus() }]);
  if (!list.data) return <Waiting error={list.error} what="Looking for datasets …" />;
  const rows = list.data.datasets.filter(({ name, dataset }) => `${name} ${dataset}`.toLowerCase().includes(words));
  return (
    <div class="page">
      <div class="spread">
        <h1>
          Data <span class="muted small">{rows.length}</span>
        </h1>
        <form
          class="row nowrap dataset-search"
          onSubmit={(event) => {
            event.preventDefault();
            const name = search.current?.value.trim() ?? '';
            if (name !== '') go(['data', rows[0]?.dataset ?? name]);
          }}
        >
          <input
            ref={search}
            type="search"
            aria-label="Search datasets, or name a file or one of the hub"
            placeholder="Search, or name a file or hub dataset"
            value={route.value.query.q ?? ''}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
          />
          <button type="submit" class="button">
            Open
          </button>
        </form>
      </div>
      {list.data.datasets.length === 0 ? (
        <div class="card">
          <Empty icon="data" title="No datasets here yet">
            <p>
              Files (.jsonl, .parquet, .csv) below the studio’s folder appear here, and so do votes and ratings. A task
              makes some:
            </p>
            <Command
              text={`${session.value?.attune ?? 'attune'} tasks generate --kind preference --tasks chain_sum --count 1000 --out pairs.jsonl`}
            />
          </Empty>
        </div>
      ) : (
        <Table
          label="Datasets"
          columns={isSmall.value ? smallColumns : columns}
          total={rows.length}
          rowAt={(i) => rows[i]}
          keyOf={({ dataset }) => dataset}
          rowHeight={rowHeight}
          height={`min(${37 + rowHeight * Math.max(2, rows.length)}px, calc(100dvh - 150px))`}
          minWidth={isSmall.value ? 300 : 620}
          onOpen={({ dataset }) => go(['data', dataset])}
        >
          <p class="empty">None of these. Open takes what is typed as a file or as a dataset of the hub.</p>
        </Table>
      )}
    </div>
  );
}

/** On a phone a dataset is two lines: its name, and what is known of it. */
const smallColumns: Column<DatasetRow>[] = [
  {
    title: 'Dataset',
    width: 'minmax(0, 1fr)',
    cell: (row) => (
      <div class="dataset-lines">
        <b class="cut" title={row.dataset}>
          {row.name}
        </b>
        <div class="small muted cut">
          {[row.source, row.shape].filter(Boolean).join(', ')} · <Size value={row.bytes} /> · <Time at={row.modified} />
        </div>
      </div>
    ),
  },
];

const columns: Column<DatasetRow>[] = [
  {
    title: 'Dataset',
    width: 'minmax(220px, 3fr)',
    cell: (row) => (
      <>
        <b class="dataset-name" title={row.dataset}>
          {row.name}
        </b>{' '}
        {!row.dataset.endsWith(row.name) && <span class="small muted">{row.dataset}</span>}
      </>
    ),
  },
  { title: 'From', width: '100px', cell: (row) => <span class="tag">{row.source}</span> },
  { title: 'Shape', width: '120px', cell: (row) => row.shape ?? '–' },
  { title: 'Size', width: '100px', right: true, cell: (row) => <Size value={row.bytes} /> },
  { title: 'Changed', width: '120px', right: true, cell: (row) => <Time at={row.modified} /> },
];

const tabs = [
  ['explore', 'What it holds'],
  ['examples', 'Examples'],
  ['rate', 'Rate pairs'],
] as const;

function Dataset({ dataset }: { dataset: string }) {
  const { query } = route.value;
  const tab = tabs.find(([name]) => name === query.tab)?.[0] ?? 'explore';
  useKeys('Dataset', [{ keys: 'u', what: 'all datasets', run: () => go(['data']) }]);
  return (
    <div class="page">
      <div class="spread">
        <div class="row">
          <a href="#/data">← Data</a>
          <h1 class="wrap" title={dataset}>
            {shown(dataset)}
          </h1>
        </div>
        <label class="row tight small">
          Split
          <input
            type="text"
            class="split"
            placeholder="train"
            value={query.split ?? ''}
            onChange={(event) => setQuery({ split: event.currentTarget.value })}
          />
        </label>
      </div>
      <nav class="tabs" aria-label="Parts of the dataset">
        {tabs.map(([name, title]) => (
          <a
            key={name}
            href={href(['data', dataset], { tab: name, split: query.split })}
            aria-current={tab === name ? 'true' : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {tab === 'explore' && <Explore dataset={dataset} split={query.split} />}
      {tab === 'examples' && <Examples dataset={dataset} split={query.split} />}
      {tab === 'rate' && <RatingQueue dataset={dataset} split={query.split} />}
    </div>
  );
}

/** Below the studio's folder, which the page names already. */
function shown(dataset: string): string {
  const root = `${session.value?.root}/`;
  return dataset.startsWith(root) ? dataset.slice(root.length) : dataset;
}
