/** A row and its place, so that every message about it can name file and line. */
import { isUtf8 } from 'node:buffer';

/** A row of a dataset: values by column name. */
export type Row = Record<string, unknown>;

export interface LocatedRow {
  row: Row;
  file: string;
  /** Counted from 1: a line of a text file, a row of a parquet file, an element of an array. */
  line: number;
}

/** Called for each broken row; throws with `onBadRow: 'fail'`. */
export type BadRow = (file: string, line: number, problem: string) => void;

/** Reads one kind of file. */
export type RowReader = (path: string, bad: BadRow) => AsyncIterable<LocatedRow>;

/** Text, or undefined if the bytes are not UTF-8. */
export function utf8(bytes: Buffer): string | undefined {
  return isUtf8(bytes) ? bytes.toString('utf8') : undefined;
}

export function isRow(value: unknown): value is Row {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** JSON's name for a value's kind, for messages. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  return Array.isArray(value) ? 'list' : typeof value;
}

/** Parses one JSON object; calls `bad` for anything else. */
export function parseRow(bytes: Buffer, file: string, line: number, bad: BadRow): LocatedRow | undefined {
  const text = utf8(bytes);
  if (text === undefined) {
    bad(file, line, 'not UTF-8 text');
    return undefined;
  }
  let row: unknown;
  try {
    row = JSON.parse(text);
  } catch (error) {
    bad(file, line, `not JSON (${(error as Error).message})`);
    return undefined;
  }
  if (!isRow(row)) {
    bad(file, line, `a row must be a JSON object, this is a ${kindOf(row)}`);
    return undefined;
  }
  return { row, file, line };
}
