/**
 * One writer per run folder. Two processes on one run would write its metrics and rollouts twice, so the writer holds
 * `run.lock`. The file names the process, and its modification time is the last heartbeat.
 *
 *     using lock = lockRun(folder, 'train policy');      // a UserError that names the holder, if there is one
 *     lock.check();                                      // an error if the folder was deleted meanwhile
 */
import {
  constants,
  copyFileSync,
  linkSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { AttuneError, UserError } from '../errors.ts';

export const lockName = 'run.lock';
const heartbeatMs = 10_000;
/** A lock is stale if its process is dead or, from another host, if its last heartbeat is older than this. */
const foreignStaleMs = 600_000;

export interface LockHolder {
  pid: number;
  host: string;
  command: string;
  /** When the lock was taken, ISO 8601. */
  since: string;
  /** Start of the process in clock ticks after boot, if known: a later process may get the same pid. */
  started?: string;
}

export interface RunLock extends Disposable {
  /** Throws if the lock is lost because the folder was deleted or replaced. */
  check(): void;
  release(): void;
}

export function lockRun(folder: string, command: string): RunLock {
  const path = join(folder, lockName);
  const own = `${path}.${process.pid}.${counter++}`;
  const holder: LockHolder = {
    pid: process.pid,
    host: hostname(),
    command,
    since: new Date().toISOString(),
    ...(startOf(process.pid) === undefined ? {} : { started: startOf(process.pid) }),
  };
  writeFileSync(own, JSON.stringify(holder));
  // Creating a hard link is atomic and fails if the lock exists, so no reader ever sees half a lock.
  try {
    while (!tryLink(own, path)) makeWay(folder);
  } finally {
    rmSync(own, { force: true });
  }
  const inode = statSync(path).ino;
  const isOurs = () => statSync(path, { throwIfNoEntry: false })?.ino === inode;
  const heartbeat = setInterval(() => {
    if (isOurs()) utimesSync(path, new Date(), new Date());
  }, heartbeatMs).unref();
  const release = () => {
    clearInterval(heartbeat);
    process.removeListener('exit', release);
    if (isOurs()) rmSync(path, { force: true });
  };
  process.on('exit', release);
  return {
    check() {
      if (!isOurs())
        throw new AttuneError(
          `The run's folder ${folder} was deleted or replaced while it was being written; what it held is gone.`,
        );
    },
    release,
    [Symbol.dispose]: release,
  };
}

let counter = 0;

function tryLink(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return false;
    // On file systems without hard links the file is copied. A reader may briefly see an empty lock.
    if (['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'].includes(code)) return tryCopy(from, to);
    throw error;
  }
}

function tryCopy(from: string, to: string): boolean {
  try {
    copyFileSync(from, to, constants.COPYFILE_EXCL);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Moves a stale lock away. Throws if a live process holds it. */
function makeWay(folder: string): void {
  const path = join(folder, lockName);
  const found = lockHolder(folder);
  if (found?.isLive) throw heldError(folder, found);
  const aside = `${path}.stale.${process.pid}.${counter++}`;
  try {
    // If two processes find the same stale lock, one moves it, and the other finds the new lock on its next try.
    renameSync(path, aside);
    rmSync(aside, { force: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

export function heldError(folder: string, { holder, quietMs }: FoundLock): UserError {
  return new UserError(
    `The run ${folder} is being written by process ${holder.pid} on ${holder.host} (attune ${holder.command}, since ${holder.since}, last sign of life ${Math.round(quietMs / 1000)} s ago). Wait for it, or stop it first.`,
  );
}

export interface FoundLock {
  holder: LockHolder;
  /** Time since the last heartbeat. */
  quietMs: number;
  isLive: boolean;
}

/** The holder of a run's lock; undefined if it is not locked. */
export function lockHolder(folder: string): FoundLock | undefined {
  const path = join(folder, lockName);
  try {
    const quietMs = Math.max(0, Date.now() - statSync(path).mtimeMs);
    const holder = JSON.parse(readFileSync(path, 'utf8')) as LockHolder;
    return { holder, quietMs, isLive: isLive(holder, quietMs) };
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function isLive({ pid, host, started }: LockHolder, quietMs: number): boolean {
  if (host !== hostname()) return quietMs < foreignStaleMs;
  return isAlive(pid) && (started === undefined || startOf(pid) === undefined || startOf(pid) === started);
}

/** Whether a process of this machine is running. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Field 22 of /proc/PID/stat. The name in field 2 may contain blanks and brackets, so fields are counted after it. */
function startOf(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}
