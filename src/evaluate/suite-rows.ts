/** The rows of a suite as in its files: a path, a folder, a hub name, or rows in memory. */
import type { DatasetSpec, Row } from '../data/index.ts';
import { RowProblem } from '../data/shapes/messages.ts';
import { localFiles } from '../data/sources/files.ts';
import { hubFiles, repoNamed } from '../data/sources/hub.ts';
import { fileRows, memoryRows, type Rows, sourceName } from '../data/sources/rows.ts';
import { UserError } from '../errors.ts';
import { datasetHub } from '../hub/hub.ts';
import type { Progress } from '../progress.ts';

/** The part of a suite to read. */
export interface RowsWanted {
  split?: string;
  subset?: string;
  /** Files of the repository that do not belong to it. */
  without?: RegExp;
  /** A well-known set's repository, as opposed to a name that the user may have misspelt. */
  isKnown?: boolean;
  progress?: Progress;
}

/** Opens the rows of a suite. Without a split it takes the test split, else the validation split, else all rows. */
export async function suiteRows(spec: DatasetSpec, wanted: RowsWanted = {}): Promise<Rows> {
  if (typeof spec !== 'string') return memoryRows(spec);
  const { subset, without, isKnown = false, progress } = wanted;
  const open = async (split: string | undefined) => {
    const local = localFiles(spec, { split, subset });
    if (local !== undefined) return fileRows(local.files);
    const hub = datasetHub({ progress });
    const place = isKnown ? { repo: spec } : await repoNamed(spec, hub);
    return fileRows(await hubFiles(hub, { ...place, split, subset }, { without }));
  };
  if (wanted.split !== undefined) return open(wanted.split);
  // File names tell the split. A set whose names do not is taken whole.
  for (const split of ['test', 'validation']) {
    try {
      return await open(split);
    } catch (error) {
      if (!(error instanceof UserError) || !/: no split "/.test(error.message)) throw error;
    }
  }
  return open('all');
}

/**
 * Reads all rows through `read`. With several files, `read` also gets the part that the file's name states. An
 * unreadable row throws an error with its file and line.
 */
export async function readSuite<T>(
  rows: Rows,
  name: string,
  read: (row: Row, part: string | undefined) => T,
): Promise<T[]> {
  const bad = (file: string, line: number, problem: string): never => {
    throw new UserError(`${file}:${line}: ${problem}.`);
  };
  const items: T[] = [];
  for await (const { row, file, line } of rows.read(bad)) {
    try {
      items.push(read(row, rows.manyFiles ? sourceName(file) : undefined));
    } catch (error) {
      if (!(error instanceof RowProblem)) throw error;
      bad(file, line, error.message);
    }
  }
  if (items.length === 0) throw new UserError(`${name}: there are no rows.`);
  return items;
}
