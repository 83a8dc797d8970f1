/** Files of a build: a folder that can be written, one builder at a time, and what is left of old builds. */
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';

/** A build that could not be done: the fault in the first line of the message, then the compiler's words or what to do. */
export class BuildError extends Error {
  name = 'BuildError';
}

/** The first of these folders that can be written, made if need be; undefined where none can. */
export function firstWritable(folders) {
  return folders.find((folder) => {
    try {
      mkdirSync(folder, { recursive: true });
      return canWrite(folder);
    } catch {
      return false;
    }
  });
}

export const canWrite = (path) => allows(path, constants.W_OK);
export const canRead = (path) => allows(path, constants.R_OK);

function allows(path, mode) {
  try {
    accessSync(path, mode);
    return true;
  } catch {
    return false;
  }
}

/** One build at a time per fingerprint; a lock whose owner is gone, or that nobody has touched for a minute, is taken over. */
export async function withLock(lock, log, work) {
  let told = false;
  while (true) {
    try {
      writeFileSync(lock, JSON.stringify({ pid: process.pid, host: hostname() }), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      if (isStale(lock)) {
        rmSync(lock, { force: true });
        continue;
      }
      if (!told) log('another process is building the addon: waiting for it');
      told = true;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  const heartbeat = setInterval(() => touch(lock), 5_000);
  try {
    return await work();
  } finally {
    clearInterval(heartbeat);
    rmSync(lock, { force: true });
  }
}

function isStale(lock) {
  try {
    if (Date.now() - statSync(lock).mtimeMs > 60_000) return true;
    const owner = JSON.parse(readFileSync(lock, 'utf8'));
    if (owner.host !== hostname()) return false;
    process.kill(owner.pid, 0);
    return false;
  } catch (error) {
    // ESRCH: the owner is dead. ENOENT: it has just finished. Half-written JSON: it has just begun.
    return error.code === 'ESRCH';
  }
}

export function touch(path) {
  try {
    utimesSync(path, new Date(), new Date());
  } catch {
    // It went away under us: a lock is not needed for the atomic rename, and a missing object fails in the link.
  }
}

/** Addons and objects that nobody has used in a build for a week belong to sources long changed. */
export function prune(build, keep) {
  const old = readdirSync(build)
    .filter((name) => /\.(o|node)$/.test(name) && join(build, name) !== keep)
    .map((name) => ({ path: join(build, name), age: Date.now() - statSync(join(build, name)).mtimeMs }))
    .filter((file) => file.age > 7 * 24 * 3600 * 1000);
  for (const file of old) rmSync(file.path, { force: true });
}

export function writeIfChanged(path, text) {
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return;
  const temporary = `${path}.${process.pid}`;
  writeFileSync(temporary, text);
  renameSync(temporary, path);
}

export function digest(...parts) {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(typeof part === 'number' ? String(part) : part).update('\0');
  return hash.digest('hex').slice(0, 16);
}
