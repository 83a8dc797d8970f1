/** Where a dataset's rows come from: files or memory. Each call of `read` is a new pass. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { AttuneError, UserError } from '../../errors.ts';
import { readerFor, splitOf } from './files.ts';
import { type BadRow, isRow, kindOf, type LocatedRow, type Row } from './row.ts';

export interface Rows {
  readonly manyFiles: boolean;
  /** A source that can be read only once. */
  readonly once?: boolean;
  read(bad: BadRow): AsyncIterable<LocatedRow>;
  /** The first valid row. It does not use up a source that can be read only once. */
  first(bad: BadRow): Promise<LocatedRow | undefined>;
  /** A hash of the content; undefined for a source that can be read only once. */
  fingerprint(): Promise<string | undefined>;
}

/** Plain objects. An iterable is read once; an array, or a function that makes an iterable, as often as needed. */
export type RowsInMemory =
  | readonly object[]
  | Iterable<object>
  | AsyncIterable<object>
  | (() => Iterable<object> | AsyncIterable<object>);

const ignore: BadRow = () => {};

export function fileRows(files: readonly string[]): Rows {
  async function* read(bad: BadRow): AsyncGenerator<LocatedRow> {
    for (const file of files) {
      const reader = readerFor(file);
      if (reader === undefined) throw new AttuneError(`${file}: no reader for this kind of file.`);
      yield* reader(file, bad);
    }
  }
  return {
    manyFiles: files.length > 1,
    read,
    async first(bad) {
      for await (const located of read(bad)) return located;
      return undefined;
    },
    async fingerprint() {
      const hash = createHash('sha256');
      for (const file of files) {
        // The file's name is hashed too: it decides the reader and the examples' `source`.
        hash.update(`\0${file.split('/').at(-1)}\0`);
        for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk);
      }
      return hash.digest('hex');
    },
  };
}

export function memoryRows(rows: RowsInMemory): Rows {
  if (Array.isArray(rows) || typeof rows === 'function') {
    const pass = () => (typeof rows === 'function' ? rows() : rows);
    return {
      manyFiles: false,
      read: (bad) => located(pass(), bad),
      async first(bad) {
        for await (const row of located(pass(), bad)) return row;
        return undefined;
      },
      fingerprint: async () => (Array.isArray(rows) ? hashRows(rows) : undefined),
    };
  }
  let listener = ignore;
  const once = located(rows as AsyncIterable<Row>, (...fault) => listener(...fault));
  let head: LocatedRow | undefined;
  let used = false;
  return {
    manyFiles: false,
    once: true,
    async *read(bad) {
      if (used)
        throw new UserError('An iterable can be read only once. Give an array, or a function that makes the iterable.');
      used = true;
      listener = bad;
      if (head !== undefined) yield head;
      yield* once;
    },
    async first(bad) {
      listener = bad;
      if (head === undefined && !used) head = (await once.next()).value ?? undefined;
      return head;
    },
    fingerprint: async () => undefined,
  };
}

async function* located(rows: Iterable<unknown> | AsyncIterable<unknown>, bad: BadRow): AsyncGenerator<LocatedRow> {
  let line = 0;
  for await (const row of rows) {
    line++;
    if (isRow(row)) yield { row, file: 'rows', line };
    else bad('rows', line, `a row must be an object, this is a ${kindOf(row)}`);
  }
}

function hashRows(rows: readonly unknown[]): string {
  const hash = createHash('sha256');
  for (const row of rows) hash.update(`${JSON.stringify(row)}\n`);
  return hash.digest('hex');
}

/** What a file's name says beyond its split and part number: `harmless-base.test.jsonl.gz` → `harmless-base`. */
export function sourceName(file: string): string | undefined {
  const [stem = '', folder] = file.split('/').reverse();
  const bare = stem
    .replace(/\.(jsonl|ndjson|json|csv|tsv|parquet)(\.gz|\.zst)?$/i, '')
    .replace(/-\d{5}-of-\d{5}.*$/, '');
  const words = bare.split('.').filter((word) => splitOf(word) === undefined);
  if (words.length > 0) return words.join('.');
  return folder === undefined || folder === 'data' || splitOf(folder) !== undefined ? undefined : folder;
}
