/**
 * Reads the cells of a suite's rows. A cell of the wrong kind throws a RowProblem, which the reader reports with its
 * place.
 */
import type { Row } from '../../data/index.ts';
import { RowProblem } from '../../data/shapes/messages.ts';
import { kindOf } from '../../data/sources/row.ts';

/** Text, or a number as text. */
export function textCell(row: Row, column: string): string {
  const value = row[column];
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  throw new RowProblem(`"${column}" must be text, this is a ${kindOf(value)}`);
}

/** A list of texts. In csv files, a list written as JSON. */
export function textsCell(row: Row, column: string): string[] {
  const value = parsed(row[column]);
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value;
  throw new RowProblem(`"${column}" must be a list of texts, this is a ${kindOf(value)}`);
}

/** A whole number, possibly written as text. */
export function indexCell(row: Row, column: string): number {
  const value = Number(row[column] === '' ? Number.NaN : row[column]);
  if (Number.isInteger(value)) return value;
  throw new RowProblem(`"${column}" must be a whole number, this is ${JSON.stringify(row[column]) ?? 'missing'}`);
}

/** The subject of a row, from the first of these columns that it has. */
export function subjectOf(row: Row, ...columns: string[]): { subject?: string } {
  const found = [...columns, 'subject', 'category', 'subset'].find((column) => typeof row[column] === 'string');
  return found === undefined ? {} : { subject: row[found] as string };
}

/** Parses lists and objects inside a csv cell. */
export function parsed(value: unknown): unknown {
  if (typeof value !== 'string' || !/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
