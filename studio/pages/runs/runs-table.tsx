/** The table of runs. */
import type { RunRow } from '../../../src/studio/api.ts';
import { go, href } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { colorOf, isShare, labelFor, sideOf } from '../../format/metrics.ts';
import { shortModel } from '../../format/models.ts';
import { count } from '../../format/numbers.ts';
import { Num, Size, State, Time } from '../../parts/figures.tsx';
import { Icon } from '../../parts/icons.tsx';
import { Spark } from '../../parts/page-parts.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { type RunSort, resultOf } from './filter.ts';

/** Two lines of text, and below them the progress of a run that is going on. */
const rowHeight = 52;

interface RunsTableProps {
  rows: readonly RunRow[];
  chosen: readonly string[];
  onChoose: (ids: readonly string[]) => void;
  sort: RunSort;
  dir: 'asc' | 'desc';
  metric?: string | undefined;
  onSort: (sort: RunSort, dir: 'asc' | 'desc') => void;
  /** Leaves room for the comparison below. */
  isShort: boolean;
}

export function RunsTable({ rows, chosen, onChoose, sort, dir, metric, onSort, isShort }: RunsTableProps) {
  const toggle = (id: string) => onChoose(chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id]);
  const columns: Column<RunRow, RunSort>[] = isSmall.value
    ? smallColumns
    : [
        {
          title: '',
          width: '40px',
          cell: (run) => <Tick run={run} chosen={chosen.includes(run.id)} onToggle={toggle} />,
        },
        { title: 'Name', width: 'minmax(170px, 1.7fr)', sort: 'name', cell: (run) => <Name run={run} /> },
        { title: 'Kind', width: '104px', sort: 'kind', cell: (run) => <Kind run={run} /> },
        {
          title: 'Model',
          width: 'minmax(100px, 0.8fr)',
          sort: 'model',
          cell: (run) => <span title={run.model}>{shortModel(run.base ?? run.model ?? '–')}</span>,
        },
        { title: 'State', width: '140px', sort: 'state', cell: (run) => <Progress run={run} /> },
        {
          title: 'Result',
          width: 'minmax(230px, 1.5fr)',
          sort: 'metric',
          cell: (run) => (
            <Result run={metric ? { kind: run.kind, last: run.last, metric: resultOf(run, metric) } : run} />
          ),
        },
        // From the left: text that grows from the right would move.
        { title: 'Size', width: '88px', sort: 'bytes', cell: (run) => <Size value={run.bytes} /> },
        { title: 'Updated', width: '110px', sort: 'updated', cell: (run) => <Time at={run.updated} /> },
      ];
  const needed = 35 + rowHeight * Math.max(3, rows.length) + 2;
  return (
    <Table
      label="Runs"
      columns={columns}
      total={rows.length}
      rowAt={(i) => rows[i]}
      keyOf={(run) => run.id}
      rowHeight={rowHeight}
      height={`min(${needed}px, ${isShort ? '38dvh' : 'calc(100dvh - 170px)'})`}
      minWidth={isSmall.value ? 350 : 980}
      onOpen={(run) => go(['runs', run.id])}
      isChosen={(run) => chosen.includes(run.id)}
      sort={sort}
      dir={dir}
      onSort={onSort}
    >
      <p class="empty">No run fits the search.</p>
    </Table>
  );
}

/** A phone is for watching: choosing and comparing needs room. */
const smallColumns: Column<RunRow, RunSort>[] = [
  { title: 'Name', width: 'minmax(110px, 1fr)', sort: 'name', cell: (run) => <Name run={run} /> },
  { title: 'State', width: '110px', sort: 'state', cell: (run) => <Progress run={run} /> },
  { title: 'Result', width: '126px', sort: 'metric', cell: (run) => <Result run={{ ...run, spark: undefined }} /> },
];

function Tick({ run, chosen, onToggle }: { run: RunRow; chosen: boolean; onToggle: (id: string) => void }) {
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the click is only kept from opening the row
    <label class="tick" onClick={(event) => event.stopPropagation()}>
      <input type="checkbox" aria-label={`Choose ${run.name}`} checked={chosen} onChange={() => onToggle(run.id)} />
    </label>
  );
}

function Name({ run }: { run: RunRow }) {
  const folders = run.path.split('/').slice(0, -1);
  const folder = folders.length > 2 ? `…/${folders.slice(-2).join('/')}` : folders.join('/');
  return (
    <div class="run-name">
      <a href={href(['runs', run.id])} tabIndex={-1} title={run.path} class="cut">
        {run.name}
      </a>
      <div class="row tight small muted cut">
        {folder !== '' && <span class="cut">{folder}</span>}
        {run.tags.map((tag) => (
          <span key={tag} class="tag note">
            {tag}
          </span>
        ))}
      </div>
    </div>
  );
}

function Kind({ run }: { run: RunRow }) {
  return (
    <div class="two-lines">
      <div>{run.kind}</div>
      {run.method && <div class="small muted cut">{run.method}</div>}
    </div>
  );
}

function Progress({ run }: { run: RunRow }) {
  const share = run.totalSteps ? Math.min(1, run.step / run.totalSteps) : undefined;
  return (
    <div class="two-lines">
      <div class="row tight nowrap">
        <State state={run.state} />
        <Warnings of={run.warnings} />
      </div>
      <div class="small muted number">
        {`step ${count(run.step)}${run.totalSteps === undefined || run.totalSteps === run.step ? '' : ` of ${count(run.totalSteps)}`}`}
      </div>
      {run.state === 'running' && share !== undefined && (
        <div class="progress">
          <div style={{ width: `${100 * share}%` }} />
        </div>
      )}
    </div>
  );
}

function Warnings({ of: n }: { of: number | undefined }) {
  if (!n) return null;
  const title = `${n === 1 ? '1 warning' : `${n} warnings`}: open the run to read what its numbers say`;
  return (
    <span class="warnings" role="img" aria-label={n === 1 ? '1 warning' : `${n} warnings`} title={title}>
      <Icon name="warning" />
      {n}
    </span>
  );
}

interface ResultProps {
  run: { kind: string; metric?: RunRow['metric'] | undefined; spark?: number[] | undefined; last: RunRow['last'] };
}

function Result({ run: { kind, metric, spark, last } }: ResultProps) {
  if (!metric) return <span class="muted">–</span>;
  const name = labelFor(kind, metric.name);
  const n = metric.name.startsWith('eval/') ? last['eval/examples'] : undefined;
  return (
    <div class="run-result">
      <div class="two-lines">
        <b>
          <Num value={metric.value} kind={isShare(metric.name) ? 'percent' : 'short'} />
        </b>
        {n ? <span class="small muted">{`n = ${count(n)}`}</span> : null}
        <div class="small muted cut">{isSmall.value ? name : `${name}, ${sideOf(metric.name)}`}</div>
      </div>
      {spark && (
        <span style={{ color: `var(${colorOf(metric.name)})` }}>
          <Spark values={spark} label={`${name} over the run`} />
        </span>
      )}
    </div>
  );
}
