/** A dialect: one way in which datasets store a shape. */

import type { Row } from '../sources/row.ts';
import type { ColumnRole, Columns } from './columns.ts';
import type { Example, Shape } from './shapes.ts';

export interface Reading {
  columns: Columns;
  /** The row's number in the set. */
  index: number;
  /** Whether every pair must have a margin. */
  margins: boolean;
  /** Counts a row that is valid but cannot be used. */
  drop: (reason: string) => void;
}

export interface Dialect {
  name: string;
  shape: Shape;
  /** The roles that an error message reports missing when no dialect of the shape fits. */
  needs: ColumnRole[];
  speaks(row: Row, columns: Columns): boolean;
  read(row: Row, reading: Reading): Example[];
}
