/**
 * Rollouts of a run that was renamed or copied. The earlier ones are copied to the new name, because the database under
 * the old name may still belong to another run.
 */
import { existsSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';

/** Copies a rollout database, even one being written. Does nothing if there is none or the paths are the same. */
export function copyRollouts(from: string, to: string): void {
  if (!existsSync(from)) return;
  if (existsSync(to)) {
    if (realpathSync(from) === realpathSync(to)) return;
    throw new UserError(
      `The run's rollouts are in ${from}; by its name they belong in ${to}, which holds those of another run. Give the run's folder another name, or delete that file.`,
    );
  }
  makeFolder(dirname(to));
  const part = `${to}.part`; // completed by a rename: a partial copy is never taken for a database
  rmSync(part, { force: true });
  const database = new DatabaseSync(from, { timeout: 30_000 });
  try {
    database.prepare('VACUUM INTO ?').run(part);
  } finally {
    database.close();
  }
  renameSync(part, to);
}
