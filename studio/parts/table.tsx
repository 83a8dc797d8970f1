/**
 * A table of any length: only the rows in view exist. It scrolls inside itself; arrows move, Enter opens. Beyond the
 * height that browsers can draw, the scroll bar stands for shares of the rows instead of pixels.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './icons.tsx';
import { offsetOf, rowsInView, scrollFor } from './table-scroll.ts';

export interface Column<Row, Sort extends string = string> {
  title: ComponentChildren;
  /** A CSS grid track: `minmax(120px, 1fr)`, `90px`. */
  width: string;
  cell: (row: Row, index: number) => ComponentChildren;
  right?: boolean;
  sort?: Sort;
}

export interface TableProps<Row, Sort extends string = string> {
  label: string;
  columns: readonly Column<Row, Sort>[];
  total: number;
  /** undefined: not read yet. */
  rowAt: (index: number) => Row | undefined;
  keyOf: (row: Row) => string | number;
  rowHeight?: number;
  /** CSS height of the whole table. */
  height: string;
  /** Below this many pixels the columns scroll sideways. */
  minWidth: number;
  onOpen?: (row: Row, index: number) => void;
  onVisible?: (first: number, last: number) => void;
  isChosen?: (row: Row) => boolean;
  /** The row that is open elsewhere on the page: it is scrolled into view. */
  current?: number | undefined;
  sort?: Sort | undefined;
  dir?: 'asc' | 'desc' | undefined;
  onSort?: (sort: Sort, dir: 'asc' | 'desc') => void;
  /** Shown instead of rows when there are none. */
  children?: ComponentChildren;
}

const headHeight = 35;

export function Table<Row, Sort extends string = string>(props: TableProps<Row, Sort>) {
  const { columns, total, rowAt, keyOf, rowHeight = 38, minWidth, onOpen, onVisible, isChosen } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [cursor, setCursor] = useState(-1);
  const size = { total, rowHeight, viewport: Math.max(rowHeight, view.height - headHeight) };
  const { first, last, canvas } = rowsInView(size, view.top);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (total > 0) onVisible?.(first, last);
  }, [first, last, total, onVisible]);
  const moveTo = (index: number) => {
    const next = Math.max(0, Math.min(total - 1, index));
    setCursor(next);
    const element = box.current;
    if (!element) return;
    const viewport = Math.max(rowHeight, element.clientHeight - headHeight);
    element.scrollTop = scrollFor({ ...size, viewport }, element.scrollTop, next);
  };
  useEffect(() => {
    if (props.current !== undefined) moveTo(props.current);
  }, [props.current]);
  const pressed = (event: KeyboardEvent) => {
    if (event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(size.viewport / rowHeight) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page };
    const step = steps[event.key];
    if (step !== undefined) moveTo(cursor < 0 ? first : cursor + step);
    else if (event.key === 'Home') moveTo(0);
    else if (event.key === 'End') moveTo(total - 1);
    else if (event.key === 'Enter' || event.key === ' ') {
      const row = rowAt(cursor);
      if (row === undefined) return;
      onOpen?.(row, cursor);
    } else return;
    event.preventDefault();
  };
  const template = { gridTemplateColumns: columns.map(({ width }) => width).join(' ') };
  return (
    <div
      ref={box}
      class="table"
      role="grid"
      aria-label={props.label}
      aria-rowcount={total + 1}
      aria-activedescendant={cursor >= first && cursor < last ? `row-${cursor}` : undefined}
      tabIndex={0}
      style={{ height: props.height, '--table-width': `${minWidth}px` }}
      onScroll={(event) => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}
      onKeyDown={pressed}
    >
      <div class="table-head" role="row" style={template} tabIndex={-1}>
        {columns.map((column, i) => (
          <Heading key={column.sort ?? i} column={column} {...props} />
        ))}
      </div>
      {total === 0 ? (
        props.children
      ) : (
        <div class="table-body" style={{ height: `${canvas}px` }}>
          {Array.from({ length: last - first }, (_, i) => {
            const index = first + i;
            const row = rowAt(index);
            const classes = ['table-row'];
            if (row === undefined) classes.push('blank');
            else if (isChosen?.(row)) classes.push('chosen');
            if (index === cursor) classes.push('current');
            return (
              // biome-ignore lint/a11y/useKeyWithClickEvents: the grid handles keys for its rows
              <div
                key={row === undefined ? `blank-${index}` : keyOf(row)}
                id={`row-${index}`}
                role="row"
                tabIndex={-1}
                aria-rowindex={index + 2}
                aria-selected={row === undefined ? undefined : isChosen?.(row)}
                class={classes.join(' ')}
                style={{ ...template, height: `${rowHeight}px`, top: `${offsetOf(size, view.top, index)}px` }}
                onClick={() => {
                  setCursor(index);
                  if (row !== undefined) onOpen?.(row, index);
                }}
              >
                {columns.map((column, j) => (
                  <div key={column.sort ?? j} role="gridcell" tabIndex={-1} class={column.right ? 'right number' : ''}>
                    {row === undefined ? '' : column.cell(row, index)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      )}
    </div>
  );
}

function Heading<Row, Sort extends string>({
  column,
  sort,
  dir,
  onSort,
}: { column: Column<Row, Sort> } & Pick<TableProps<Row, Sort>, 'sort' | 'dir' | 'onSort'>) {
  const own = column.sort;
  const active = own !== undefined && own === sort;
  const order = !active ? 'none' : dir === 'asc' ? 'ascending' : 'descending';
  return (
    <div role="columnheader" tabIndex={-1} aria-sort={order} class={column.right ? 'right' : ''}>
      {own === undefined || !onSort ? (
        column.title
      ) : (
        <button type="button" class="sort" onClick={() => onSort(own, active && dir === 'desc' ? 'asc' : 'desc')}>
          {column.title}
          {active && <Icon name={dir === 'asc' ? 'up' : 'down'} />}
        </button>
      )}
    </div>
  );
}
