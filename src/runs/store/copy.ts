/**
 * A run that was renamed or copied has its rollouts under its new name. The earlier ones are copied there: the database of the
 * old name may still be another run's.
 */
import { existsSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';

/** Copies a database of rollouts, also one that is being written. Nothing to do where there is none, or both are the same. */
export function copyRollouts(from: string, to: string): void {
  if (!existsSync(from)) return;
  if (existsSync(to)) {
    if (realpathSync(from) === realpathSync(to)) return;
    throw new UserError(
      `The run's rollouts are in ${from}; by its name they belong in ${to}, which holds those of another run. Give the run's folder another name, or delete that file.`,
    );
  }
  makeFolder(dirname(to));
  const part = `${to}.part`; // of a copy that was cut off, or of this one: half a database must not be taken for a whole one
  rmSync(part, { force: true });
  const database = new DatabaseSync(from, { timeout: 30_000 });
  try {
    database.prepare('VACUUM INTO ?').run(part);
  } finally {
    database.close();
  }
  renameSync(part, to);
}
