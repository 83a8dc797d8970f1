/**
 * Ranks that are missing at the start: after some seconds this is reported, since somebody may have to start them.
 * `attune launch` is told over its pipe and says what to start where. Without a launcher the command line reports it.
 */
import { isLaunched, report } from './beat.ts';
import type { Place } from './place.ts';
import type { WaitNotice } from './store.ts';

/** Milliseconds until ranks are reported missing; a third of the limit if that is less. */
const noticeMs = 5000;

let listener: (line: string) => void = () => {};

/** Where ranks without a launcher report missing ranks; nowhere unless set. */
export function onWaiting(tell: (line: string) => void): void {
  listener = tell;
}

/** The notice of one rank. `over` is called once all have arrived. */
export function startNotice(place: Place, startMs: number): WaitNotice & { over: () => void } {
  let isTold = false;
  const tell = (ranks: number[]) => {
    // One rank of each machine speaks; without a launcher, the first of all, if it can know.
    if (place.localRank !== 0) return;
    if (isLaunched()) report({ waiting: ranks });
    else if (place.rank === 0 || ranks.includes(0)) listener(waitingLine(ranks, place, startMs / 1000));
    isTold = true;
  };
  const over = () => {
    if (isTold && isLaunched()) report({ waiting: [] });
  };
  return { afterMs: Math.min(noticeMs, startMs / 3), tell, over };
}

export function waitingLine(ranks: readonly number[], { rank, size, host, port }: Place, seconds: number): string {
  const limit = `for up to ${seconds} s (ATTUNE_DIST_START)`;
  if (rank !== 0) return `Rank ${rank} waits for rank 0, which does not answer at ${host}:${port} yet, ${limit}.`;
  return `Rank 0 waits for ${rankNames(ranks)} of ${size} to come to ${host}:${port}, ${limit}.`;
}

/** `rank 1`, `ranks 1, 2 and 5`. */
export function rankNames(ranks: readonly number[]): string {
  if (ranks.length === 1) return `rank ${ranks[0]}`;
  return `ranks ${ranks.slice(0, -1).join(', ')} and ${ranks.at(-1)}`;
}
