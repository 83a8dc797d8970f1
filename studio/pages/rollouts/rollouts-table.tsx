/** The table of responses. */
import type { RolloutRow, RolloutSort } from '../../../src/studio/api.ts';
import { route, setQuery } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { Explain } from '../../parts/explain.tsx';
import { Num } from '../../parts/figures.tsx';
import { Waiting } from '../../parts/page-parts.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { nothingWords } from './filters.ts';
import type { Rollouts } from './use-rollouts.ts';

const stepColumn: Column<RolloutRow, RolloutSort> = {
  title: 'Step',
  width: '66px',
  right: true,
  sort: 'step',
  cell: (row) => <Num value={row.step} kind="count" />,
};

interface RolloutsTableProps {
  rollouts: Rollouts;
  open: number | undefined;
  isEval: boolean;
  /** A response is open beside it. */
  isNarrow: boolean;
  /** More responses may come. */
  isRunning: boolean;
}

export function RolloutsTable({ rollouts, open, isEval, isNarrow: isSplit, isRunning }: RolloutsTableProps) {
  const isNarrow = isSplit || isSmall.value;
  const { answer, rowAt, onVisible, error } = rollouts;
  if (!answer) return <Waiting error={error} />;
  const { query } = route.value;
  const columns: Column<RolloutRow, RolloutSort>[] = [
    // Beside an open response room is scarce, and with one step chosen the column says the same in every row.
    ...(isNarrow && query.step ? [] : [stepColumn]),
    { title: 'Prompt and response', width: 'minmax(200px, 1fr)', cell: (row) => <Text row={row} /> },
    {
      title: (
        <>
          Reward
          {!isNarrow && <Explain term="reward" />}
        </>
      ),
      width: isNarrow ? '76px' : '96px',
      right: true,
      sort: 'reward',
      cell: (row) => <Num value={row.reward} />,
    },
    ...(isEval || isNarrow
      ? []
      : ([
          {
            title: (
              <>
                Advantage
                <Explain term="advantage" />
              </>
            ),
            width: '124px',
            right: true,
            sort: 'advantage',
            cell: (row) => <Num value={row.advantage} />,
          },
          ...(answer.has.kl
            ? ([
                {
                  title: (
                    <>
                      KL
                      <Explain term="kl" />
                    </>
                  ),
                  width: '92px',
                  right: true,
                  sort: 'kl',
                  cell: (row) => <Num value={row.kl} least={1e-6} />,
                },
              ] satisfies Column<RolloutRow, RolloutSort>[])
            : []),
        ] satisfies Column<RolloutRow, RolloutSort>[])),
    ...(isNarrow
      ? []
      : ([
          {
            title: 'Length',
            width: '80px',
            right: true,
            sort: 'length',
            cell: (row) => <Num value={row.length} kind="count" />,
          },
        ] satisfies Column<RolloutRow, RolloutSort>[])),
    // A phone has a dot before the response instead.
    ...(isSmall.value
      ? []
      : [
          {
            title: '',
            width: isNarrow ? '70px' : '118px',
            cell: (row) => <Marks row={row} isNarrow={isNarrow} />,
          } satisfies Column<RolloutRow, RolloutSort>,
        ]),
  ];
  return (
    <Table
      label="Responses"
      columns={columns}
      total={answer.total}
      rowAt={rowAt}
      keyOf={(row) => row.id}
      rowHeight={54}
      height="var(--list-height)"
      minWidth={isSmall.value ? 342 : isNarrow ? 420 : 620}
      onVisible={onVisible}
      onOpen={(row) => setQuery({ open: row.id, view: query.view === 'what-if' ? undefined : query.view })}
      isChosen={(row) => row.id === open}
      current={open === undefined ? undefined : rollouts.indexOf((row) => row.id === open)}
      sort={query.sort as RolloutSort | undefined}
      dir={query.dir === 'asc' ? 'asc' : 'desc'}
      onSort={(sort, dir) => setQuery({ sort, dir })}
    >
      <p class="empty">{error ? error.message : nothingWords(query, isRunning)}</p>
    </Table>
  );
}

function Text({ row }: { row: RolloutRow }) {
  return (
    <div class="response-line">
      <div class="cut muted small">{oneLine(row.prompt)}</div>
      <div class="cut">
        {isSmall.value && row.correct !== undefined && (
          <span
            class={row.correct ? 'verdict right' : 'verdict'}
            role="img"
            aria-label={row.correct ? 'right' : 'wrong'}
          />
        )}
        {oneLine(row.completion) || <span class="muted">(empty)</span>}
      </div>
    </div>
  );
}

function Marks({ row, isNarrow }: { row: RolloutRow; isNarrow: boolean }) {
  return (
    <span class="row tight nowrap">
      {row.correct !== undefined && (
        <span class={row.correct ? 'tag good' : 'tag bad'}>{row.correct ? 'right' : 'wrong'}</span>
      )}
      {row.ending === 'cut' && !isNarrow && <span class="tag warning">cut</span>}
    </span>
  );
}

/** Line breaks would hide most of a response in one row. */
const oneLine = (text: string) => text.replace(/\s+/g, ' ').trim();
