/** The rows of a long table by pages, read as they come into view; the oldest are forgotten. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { reconnections } from '../wire/requests.ts';

const pageRows = 100;
const mostPages = 60;

export interface Pages<Row> {
  rowAt: (index: number) => Row | undefined;
  onVisible: (first: number, last: number) => void;
  error: Error | undefined;
  /** Of the rows that are read; undefined where none of them is meant. */
  indexOf: (is: (row: Row) => boolean) => number | undefined;
}

/** `key` says what the rows depend on; a change of it forgets all. `read` gets an offset and a number of rows. */
export function usePages<Row>(
  key: string,
  read: (offset: number, limit: number, abort: AbortSignal) => Promise<Row[]>,
): Pages<Row> {
  const [, redraw] = useState(0);
  const [error, setError] = useState<Error>();
  const store = useRef({ key: '', pages: new Map<number, Row[] | 'asked'>(), abort: new AbortController() });
  const before = useRef(new Map<number, Row[] | 'asked'>());
  const newest = useRef(read);
  newest.current = read;
  const full = `${key}#${reconnections.value}`;
  if (store.current.key !== full) {
    store.current.abort.abort();
    if (hasRows(store.current.pages)) before.current = store.current.pages;
    store.current = { key: full, pages: new Map(), abort: new AbortController() };
  }
  useEffect(() => () => store.current.abort.abort(), []);

  const fetchPage = async (page: number) => {
    const { pages, abort } = store.current;
    pages.set(page, 'asked');
    try {
      const rows = await newest.current(page * pageRows, pageRows, abort.signal);
      pages.delete(page);
      pages.set(page, rows);
      for (const old of pages.keys()) {
        if (pages.size <= mostPages) break;
        pages.delete(old);
      }
      setError(undefined);
    } catch (failure) {
      pages.delete(page);
      if (!abort.signal.aborted) setError(failure as Error);
    }
    if (!abort.signal.aborted) redraw((n) => n + 1);
  };
  // `full` stands for the store.
  const onVisible = useCallback(
    (first: number, last: number) => {
      for (let page = Math.floor(first / pageRows); page * pageRows < last; page++)
        if (!store.current.pages.has(page)) void fetchPage(page);
    },
    [full],
  );
  // The rows of the filter before stay until the first new ones come, so that nothing flickers.
  const shown = () => (hasRows(store.current.pages) ? store.current.pages : before.current);
  const indexOf = (is: (row: Row) => boolean) => {
    for (const [number, page] of shown()) {
      const at = page === 'asked' ? -1 : page.findIndex(is);
      if (at >= 0) return number * pageRows + at;
    }
    return undefined;
  };
  const rowAt = (index: number) => {
    const page = shown().get(Math.floor(index / pageRows));
    return page === undefined || page === 'asked' ? undefined : page[index % pageRows];
  };
  return { rowAt, onVisible, error, indexOf };
}

const hasRows = (pages: ReadonlyMap<number, unknown>) => [...pages.values()].some((page) => page !== 'asked');
