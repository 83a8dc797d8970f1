/**
 * Maps a file's columns to a shape: recognises how the rows are stored and turns them into examples of the wanted
 * shape.
 *
 *     const mapping = mapRows(firstRow, { shape: 'preference', columns: { prompt: 'ask' }, where: 'pairs.jsonl' });
 *     mapping.read(row, index, drop);
 */
import { UserError } from '../../errors.ts';
import type { Row } from '../sources/row.ts';
import { type ColumnNames, Columns, unrecognised, withArticle } from './columns.ts';
import { conversion } from './conversions.ts';
import type { Dialect } from './dialect.ts';
import { dialects } from './dialects.ts';
import type { Example, PromptExample, Shape } from './shapes.ts';

export interface Mapping {
  shape: Shape;
  /** A readable name for how the rows are stored. */
  dialect: string;
  read(row: Row, index: number, drop: (reason: string) => void): Example[];
}

export interface MappingOptions {
  shape?: Shape;
  columns?: ColumnNames;
  /** Whether a pair without a readable margin is a broken row. */
  margins?: boolean;
  /** Whether prompts keep the row's other columns. */
  keepColumns?: boolean;
  /** The set's name in messages. */
  where: string;
}

export function mapRows(row: Row, options: MappingOptions): Mapping {
  const columns = new Columns(row, options.columns ?? {}, options.where);
  const spoken = dialects.filter((dialect) => dialect.speaks(row, columns));
  const dialect = choose(spoken, options.shape);
  if (dialect === undefined) {
    const needs = dialects.find((candidate) => candidate.shape === options.shape)?.needs ?? [];
    if (options.shape !== undefined && spoken[0] !== undefined) {
      const error = unrecognised(options.where, columns.names, options.shape, needs);
      throw new UserError(`${error.message} It reads as ${withArticle(spoken[0].shape)} set (${spoken[0].name}).`);
    }
    throw unrecognised(options.where, columns.names, options.shape ?? 'training', needs);
  }
  const shape = options.shape ?? dialect.shape;
  const convert = conversion(dialect.shape, shape) as (example: Example) => Example[];
  return {
    shape,
    dialect: dialect.name,
    read(current, index, drop) {
      const examples = dialect
        .read(current, { columns, index, drop, margins: options.margins ?? false })
        .flatMap(convert);
      const source = columns.get(current, 'source');
      if (typeof source === 'string') for (const example of examples) example.source ??= source;
      if (options.keepColumns && shape === 'prompts')
        for (const example of examples as PromptExample[]) example.fields = columns.others(current);
      return examples;
    },
  };
}

function choose(spoken: Dialect[], shape: Shape | undefined): Dialect | undefined {
  if (shape === undefined) return spoken[0];
  return (
    spoken.find((dialect) => dialect.shape === shape) ??
    spoken.find((dialect) => conversion(dialect.shape, shape) !== undefined)
  );
}
