/**
 * When a rank computed and when it exchanged, in the format of Chrome's trace viewer and Perfetto. With
 * ATTUNE_DIST_TRACE=folder every rank writes `rank-N.json` there when it ends.
 *
 *     traced('backward', () => loss.backward());
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeFolder } from '../folder.ts';
import { native } from '../tensor/engine/native.ts';

interface Span {
  name: string;
  track: 'compute' | 'collectives';
  /** Microseconds of the machine's monotonic clock. */
  begin: number;
  end: number;
  bytes?: number;
}

const folder = process.env.ATTUNE_DIST_TRACE;
const spans: Span[] = [];
const groups = new Set<number>();

/** The clock that native/dist reads too. */
const now = () => Number(process.hrtime.bigint() / 1000n);

/** Runs a function and, if a trace is written, records its time; if it returns a promise, until that settles. */
export function traced<T>(name: string, body: () => T): T {
  if (folder === undefined) return body();
  const begin = now();
  const end = () => void spans.push({ name, track: 'compute', begin, end: now() });
  let result: T | undefined;
  try {
    result = body();
    return result;
  } finally {
    if (result instanceof Promise) result.then(end, end);
    else end();
  }
}

/** Records when the collectives of a group ran. */
export function traceGroup(group: number, rank: number): void {
  if (folder === undefined) return;
  if (groups.size === 0) process.on('exit', () => write(folder, rank));
  groups.add(group);
  native.groupTrace(group, true);
}

function write(path: string, rank: number): void {
  for (const group of groups)
    for (const [name, bytes, begin, end] of native.groupTrace(group, false))
      spans.push({ name, track: 'collectives', begin, end, bytes });
  const events = spans.map(({ name, track, begin, end, bytes }) => ({
    name,
    cat: track,
    ph: 'X',
    pid: rank,
    tid: track === 'compute' ? 0 : 1,
    ts: begin,
    dur: end - begin,
    ...(bytes === undefined ? {} : { args: { bytes } }),
  }));
  makeFolder(path);
  writeFileSync(join(path, `rank-${rank}.json`), JSON.stringify({ traceEvents: events }));
}
