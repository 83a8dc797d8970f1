/**
 * A glimpse of a metrics file for the list of runs: its last values and a small curve, from a few pieces of the file,
 * so that a list of long runs costs no more than one of short ones.
 */
import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';

export interface Glimpse {
  /** Last values, of the rows near the end. */
  last: Record<string, number | null>;
  firstTime?: number;
  lastTime?: number;
  /** Rows from all over the file, in order. */
  rows: Record<string, unknown>[];
}

const wholeBytes = 256 << 10;
const endBytes = 64 << 10;
const pieceBytes = 4 << 10;
const pieces = 40;

const glimpses = new Map<string, { signature: string; glimpse: Glimpse }>();
const mostKept = 5000;

/** Read again only if the file has changed. */
export function glimpse(path: string): Glimpse {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined) return { last: {}, rows: [] };
  const signature = `${found.size} ${found.mtimeMs}`;
  const known = glimpses.get(path);
  if (known?.signature === signature) return known.glimpse;
  const made = glimpseOf(rowsOf(path));
  if (glimpses.size >= mostKept) glimpses.clear();
  glimpses.set(path, { signature, glimpse: made });
  return made;
}

function glimpseOf(rows: Record<string, unknown>[]): Glimpse {
  const last: Record<string, number | null> = {};
  for (const { step: _, time: __, ...values } of rows)
    for (const [name, value] of Object.entries(values)) last[name] = typeof value === 'number' ? value : null;
  const [first, newest] = [rows[0]?.time, rows.at(-1)?.time];
  return {
    last,
    rows,
    ...(typeof first === 'number' ? { firstTime: first } : {}),
    ...(typeof newest === 'number' ? { lastTime: newest } : {}),
  };
}

function rowsOf(path: string): Record<string, unknown>[] {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const read = (at: number, length: number) => {
      const bytes = Buffer.alloc(Math.min(length, size - at));
      readSync(file, bytes, 0, bytes.length, at);
      return bytes.toString('utf8');
    };
    if (size <= wholeBytes) return parsedLines(read(0, size));
    const gap = Math.floor((size - 2 * endBytes) / pieces);
    const inner = Array.from({ length: pieces }, (_, i) =>
      // The first line of a piece is usually incomplete and is dropped by the parser.
      parsedLines(read(endBytes + i * gap, Math.min(pieceBytes, gap))),
    );
    return [...parsedLines(read(0, endBytes)), ...inner.flat(), ...parsedLines(read(size - endBytes, endBytes))];
  } finally {
    closeSync(file);
  }
}

function parsedLines(text: string): Record<string, unknown>[] {
  return text.split('\n').flatMap((line) => {
    if (!line.startsWith('{')) return [];
    try {
      return [JSON.parse(line) as Record<string, unknown>];
    } catch {
      return [];
    }
  });
}

/** At most `most` values of one metric, evenly chosen, the last one included. */
export function sparkOf(rows: readonly Record<string, unknown>[], name: string, most = 40): number[] {
  const values = rows.flatMap((row) => (typeof row[name] === 'number' ? [row[name]] : []));
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, i) => values[Math.round((i * (values.length - 1)) / (most - 1))] as number);
}
