/** The rows of the table, page by page, and what the server says of all of them. */
import { useEffect, useState } from 'preact/hooks';
import type { RolloutRow, RolloutsAnswer } from '../../../src/studio/api.ts';
import type { Query } from '../../app/router.ts';
import { type Pages, usePages } from '../../parts/pages.ts';
import { get } from '../../wire/requests.ts';
import { askedFor } from './filters.ts';

export interface Rollouts extends Pages<RolloutRow> {
  /** The newest answer; its rows are one page. */
  answer: RolloutsAnswer | undefined;
}

/** `seen` changes when new rollouts are to be shown. */
export function useRollouts(run: string, query: Query, seen: number): Rollouts {
  const [answer, setAnswer] = useState<RolloutsAnswer>();
  const asked = askedFor(query);
  const key = JSON.stringify([run, asked, seen]);
  const [settled, setSettled] = useState(key);
  // What is typed is asked for when the typing pauses.
  useEffect(() => {
    const timer = setTimeout(() => setSettled(key), 120);
    return () => clearTimeout(timer);
  }, [key]);
  const pages = usePages<RolloutRow>(settled, async (offset, limit, abort) => {
    const [from, filters] = JSON.parse(settled) as [string, Record<string, string>];
    const read = await get<RolloutsAnswer>(`runs/${from}/rollouts`, { ...filters, offset, limit }, abort);
    setAnswer(read);
    return read.rows;
  });
  const { onVisible } = pages;
  useEffect(() => onVisible(0, 1), [onVisible]);
  return { ...pages, answer };
}
