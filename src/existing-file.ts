/** Files that are not replaced unasked: rows, scores and exports may have taken hours to make. */
import { statSync } from 'node:fs';
import { UserError } from './errors.ts';

/** Refuses a file that holds something already. An empty one, a pipe or a device is written to. */
export function refuseExisting(option: string, path: string, { overwrite = false }: { overwrite?: boolean }): void {
  if (overwrite) return;
  const found = fileAt(path);
  if (found?.isFile() && found.size > 0)
    throw new UserError(`${option} ${path} exists already: name another file, or replace it with --overwrite.`);
}

function fileAt(path: string) {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined; // Below a file, or not readable: whoever writes it says so.
  }
}
