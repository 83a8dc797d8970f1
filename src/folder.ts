/** Folders that are written to. */
import { mkdirSync, type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { UserError } from './errors.ts';

/** Like `mkdir -p`. Node's own `recursive` never returns where mkdir says ENOENT of a folder that is there, as in /proc. */
export function makeFolder(path: string): void {
  if (kindOf(path)?.isDirectory()) return;
  const parent = dirname(path);
  if (parent !== path) makeFolder(parent);
  try {
    mkdirSync(path);
  } catch (error) {
    const kind = kindOf(path);
    // Another process may have made it meanwhile.
    if (kind?.isDirectory()) return;
    if (kind !== undefined)
      throw new UserError(`${path} is a file, and no folder can be made there.`, { cause: error });
    if (!isUsersPlace(error)) throw error;
    throw new UserError(`The folder ${path} cannot be made: nothing can be made in ${parent}.`, { cause: error });
  }
}

/** Errors of the place that was named, not of the disk or its permissions, which have their own words. */
const isUsersPlace = (error: unknown) =>
  ['ENOENT', 'ENOTDIR', 'EEXIST'].includes((error as { code?: string }).code ?? '');

function kindOf(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    if (isUsersPlace(error)) return undefined; // Below a file.
    throw error;
  }
}
