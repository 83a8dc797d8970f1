/**
 * Files and folders that a command writes. Before the work starts it is checked that they can be written; errors name
 * the option. A file is written under a temporary name and renamed when complete. An input is never overwritten.
 *
 *     using out = new OutputFile('--out', path, [inputFile]);
 *     out.write(line); …
 *     out.finish();
 */
import {
  closeSync,
  mkdirSync,
  openSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import { tell } from '../terminal/print.ts';
import { begun, ended } from '../terminal/unfinished.ts';
import { whyUnwritable } from '../terminal/unwritable.ts';

/** What the command writes to, as it was checked. */
const checked: { option: string; path: string }[] = [];

/** Throws if the folder, which may not exist yet, cannot be written to; leaves nothing behind. */
export function checkOutputFolder(option: string, path: string | undefined): void {
  if (path === undefined) return;
  checkFolder(option, path);
  checked.push({ option, path });
}

/** `named`: what errors name, where it is not the folder. */
function checkFolder(option: string, path: string, named = path): void {
  const folder = nearestThere(path);
  if (!statOf(folder)?.isDirectory()) throw unwritable(option, named, `${folder} is a file`);
  const probe = join(folder, `.attune-${process.pid}`);
  try {
    mkdirSync(probe);
    rmdirSync(probe);
  } catch (error) {
    throw unwritable(option, named, whyUnwritable(error));
  }
}

/** The same for a file, which must not be an input. */
export function checkOutputFile(option: string, path: string, inputs: readonly (string | undefined)[] = []): void {
  const found = statOf(path);
  if (found?.isDirectory()) throw new UserError(`${option} ${path} is a folder; name a file.`);
  for (const input of inputs) {
    const read = input === undefined ? undefined : statOf(input);
    if (found !== undefined && read?.ino === found.ino && read.dev === found.dev)
      throw new UserError(`${option} ${path} is a file that is read: an input is never written over. Name another.`);
  }
  // A device or a pipe (/dev/null) is written to directly, and is on no disk that could be full.
  if (found !== undefined && !found.isFile()) return;
  checkFolder(option, dirname(path), path);
  checked.push({ option, path });
}

export class OutputFile implements Disposable {
  readonly #option: string;
  readonly #path: string;
  /** The target of a link, so that the link is kept. */
  readonly #target: string;
  readonly #partial: string;
  readonly #handle: number;
  #open = true;

  constructor(option: string, path: string, inputs: readonly (string | undefined)[] = []) {
    checkOutputFile(option, path, inputs);
    const found = statOf(path);
    this.#option = option;
    this.#path = path;
    this.#target = found === undefined ? resolve(path) : realpathSync(path);
    const beside = join(dirname(this.#target), `.${basename(this.#target)}.${process.pid}.part`);
    this.#partial = found !== undefined && !found.isFile() ? this.#target : beside;
    if (this.#partial !== this.#target) begun(this.#partial); // before it is there: a signal may come at once
    try {
      this.#handle = this.#checked(() => {
        makeFolder(dirname(this.#partial));
        return openSync(this.#partial, 'w');
      });
    } catch (error) {
      ended(this.#partial);
      throw error;
    }
  }

  write(text: string): void {
    const bytes = Buffer.from(text);
    this.#checked(() => {
      for (let done = 0; done < bytes.length; ) done += writeSync(this.#handle, bytes, done);
    });
  }

  finish(): void {
    closeSync(this.#handle);
    this.#open = false;
    ended(this.#partial);
    if (this.#partial !== this.#target) this.#checked(() => renameSync(this.#partial, this.#target));
  }

  /** Removes a file that was not finished. */
  [Symbol.dispose](): void {
    if (!this.#open) return;
    closeSync(this.#handle);
    this.#open = false;
    ended(this.#partial);
    if (this.#partial !== this.#target) rmSync(this.#partial, { force: true });
  }

  #checked<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      throw unwritable(this.#option, this.#path, whyUnwritable(error));
    }
  }
}

/** What to say of an error that is the system's word for a full disk, which names no file; undefined of any other. */
export function diskFullWords(error: unknown): string | undefined {
  const { code, message } = error as NodeJS.ErrnoException;
  if (error instanceof UserError || !(code === 'ENOSPC' || code === 'EDQUOT' || /no space left/i.test(message)))
    return undefined;
  const fullest = checked.toReversed().sort((a, b) => freeBytes(a.path) - freeBytes(b.path))[0];
  return fullest === undefined
    ? `The disk is full (${message}).`
    : unwritable(fullest.option, fullest.path, 'the disk is full').message;
}

function freeBytes(path: string): number {
  const { bavail, bsize } = statfsSync(nearestThere(path));
  return bavail * bsize;
}

/** Tells the user that results of an earlier call will be replaced. */
export function noteReplaced(folder: string, name: string): void {
  const found = statOf(join(folder, name));
  if (found !== undefined)
    tell(
      `${join(folder, name)} of ${found.mtime.toLocaleString()} will be replaced; --output-dir keeps results apart.`,
    );
}

const statOf = (path: string) => {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    // below a file (ENOTDIR), or not readable
    return undefined;
  }
};

/** The path, or the nearest one above it that is there. */
function nearestThere(path: string): string {
  let folder = resolve(path);
  while (statOf(folder) === undefined && dirname(folder) !== folder) folder = dirname(folder);
  return folder;
}

const unwritable = (option: string, path: string, why: string) =>
  new UserError(`${option} ${path} cannot be written: ${why}.`);
