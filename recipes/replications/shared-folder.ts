/** A folder that several jobs need, made by the first of them that asks. */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { isAlive } from '../../src/runs/lock.ts';

/** The others wait for it. The lock holds the maker's process id, so that a dead one counts for nothing. */
export async function sharedFolder(path: string, make: (folder: string) => Promise<void>): Promise<string> {
  const lock = `${path}.lock`;
  while (!existsSync(path)) {
    if (!locked(lock)) {
      await setTimeout(200);
      continue;
    }
    const making = `${path}.${process.pid}`;
    try {
      mkdirSync(making, { recursive: true });
      await make(making);
      renameSync(making, path);
    } finally {
      rmSync(making, { recursive: true, force: true });
      rmSync(lock, { force: true });
    }
  }
  return path;
}

/** Takes the lock unless a living process has it. */
function locked(lock: string): boolean {
  try {
    writeFileSync(lock, String(process.pid), { flag: 'wx' });
    return true;
  } catch {
    const owner = existsSync(lock) ? Number(readFileSync(lock, 'utf8')) : 0;
    if (owner > 0 && !isAlive(owner)) rmSync(lock, { force: true });
    return false;
  }
}
