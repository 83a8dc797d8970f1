/**
 * The cache of Python's huggingface_hub: models--org--name/{blobs,refs,snapshots}. A blob is named by its etag and
 * appears only when it is complete. A snapshot is a folder of links to blobs. A ref is written last, when all requested
 * files are there.
 */
import { copyFile, mkdir, readFile, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { AttuneError } from '../errors.ts';

export interface RepoFile {
  path: string;
  /** Bytes; -1 if it is known only after a download. */
  size: number;
  /** The blob's name; "" if it is known only from a download's headers. */
  etag: string;
  /** Present for large files. */
  sha256?: string;
}

const COMMIT = /^[0-9a-f]{40}$/;
const LOCK_BEAT_MS = 5_000;
const LOCK_STALE_MS = 30_000;
const OWNER = `${hostname()} ${process.pid}`;

export class RepoCache {
  readonly folder: string;
  readonly #locks: string;

  constructor(cacheDir: string, type: 'model' | 'dataset', repo: string) {
    const name = [`${type}s`, ...repo.split('/')].join('--');
    this.folder = join(cacheDir, name);
    this.#locks = join(cacheDir, '.locks', name);
  }

  snapshot(commit: string): string {
    return join(this.folder, 'snapshots', commit);
  }

  blob(etag: string): string {
    return join(this.folder, 'blobs', etag);
  }

  /** The commit that a branch or tag pointed to when it was last fetched. */
  async commitOf(revision: string): Promise<string | undefined> {
    if (COMMIT.test(revision)) return revision;
    const commit = (await readText(join(this.folder, 'refs', revision)))?.trim();
    return commit !== undefined && /^[A-Za-z0-9][\w-]*$/.test(commit) ? commit : undefined;
  }

  async writeRef(revision: string, commit: string): Promise<void> {
    if (revision !== commit) await writeWhole(join(this.folder, 'refs', revision), commit);
  }

  /** Saves the list of a commit's files, which tells a partial copy from a complete one when offline. */
  async writeListing(commit: string, files: readonly RepoFile[]): Promise<void> {
    await writeWhole(join(this.folder, '.attune', `${commit}.json`), JSON.stringify(files));
  }

  async listing(commit: string): Promise<RepoFile[] | undefined> {
    const text = await readText(join(this.folder, '.attune', `${commit}.json`));
    try {
      const files: unknown = text === undefined ? undefined : JSON.parse(text);
      return Array.isArray(files) && files.every((file) => typeof file?.path === 'string') ? files : undefined;
    } catch {
      return undefined;
    }
  }

  /** Links a blob into a snapshot, or copies it if the file system has no links. */
  async link(commit: string, file: RepoFile): Promise<void> {
    const path = join(this.snapshot(commit), file.path);
    const blob = this.blob(file.etag);
    await mkdir(dirname(path), { recursive: true });
    const temporary = `${path}.${process.pid}-${Math.random().toString(36).slice(2)}`;
    try {
      await symlink(relative(dirname(path), blob), temporary);
    } catch {
      await copyFile(blob, temporary);
    }
    await rename(temporary, path);
  }

  /** Runs `work` while no other process does so for the same blob. The lock of a dead process is taken over. */
  async locked<T>(etag: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const path = join(this.#locks, `${etag}.attune`);
    await mkdir(this.#locks, { recursive: true });
    while (!(await this.#claim(path))) {
      signal?.throwIfAborted();
      if (await isStale(path)) await rm(path, { force: true });
      else await sleep(100, undefined, { signal });
    }
    const beat = setInterval(() => void utimes(path, new Date(), new Date()).catch(() => {}), LOCK_BEAT_MS);
    try {
      return await work();
    } finally {
      clearInterval(beat);
      await rm(path, { force: true });
    }
  }

  async #claim(path: string): Promise<boolean> {
    try {
      await writeFile(path, OWNER, { flag: 'wx' });
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw new AttuneError(`The hub's cache cannot be written: ${(error as Error).message}`);
    }
  }
}

/** A lock is stale if its process is dead or, from another host (a shared disk), if it has not been touched lately. */
async function isStale(path: string): Promise<boolean> {
  const [host, pid] = ((await readText(path)) ?? '').split(' ');
  if (host === hostname() && Number(pid) !== process.pid) return !isRunning(Number(pid));
  const touched = (await stat(path).catch(() => undefined))?.mtimeMs;
  return touched !== undefined && Date.now() - touched > LOCK_STALE_MS;
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** The size of a file, following links; undefined if there is none. */
export async function fileSize(path: string): Promise<number | undefined> {
  try {
    const found = await stat(path);
    return found.isFile() ? found.size : undefined;
  } catch {
    return undefined;
  }
}

async function readText(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}

async function writeWhole(path: string, content: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${process.pid}-${Math.random().toString(36).slice(2)}`;
  await writeFile(temporary, content);
  await rename(temporary, path);
}
