/**
 * Files of lines that are added to: votes, ratings, thumbs. People edit such files, and a crash cuts a line off, so the
 * last line may lack its end; what is added then still begins a line of its own.
 */
import { appendFileSync, closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { UserError } from './errors.ts';

/** Adds a line of JSON. */
export function appendLine(path: string, row: object): void {
  appendFileSync(path, `${endsInLine(path) ? '' : '\n'}${JSON.stringify(row)}\n`);
}

/** Whether a new line can begin at the end of the file: it is empty, ends in a newline, or is none that can be read. */
function endsInLine(path: string): boolean {
  if (!(statSync(path, { throwIfNoEntry: false })?.isFile() ?? false)) return true;
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const last = Buffer.alloc(1);
    return size === 0 || readSync(file, last, 0, 1, size - 1) === 0 || last[0] === 0x0a;
  } finally {
    closeSync(file);
  }
}

/** Refuses a path that lines cannot be added to: a folder, or below a folder that is not there. */
export function checkLineFile(option: string, path: string): void {
  if (path === '') throw new UserError(`${option} is empty: name a file.`);
  const there = kindOf(path);
  if (there?.isDirectory()) throw new UserError(`${option} ${path} is a folder: name a file in it.`);
  // What was written is read again, and a device or a pipe may have no end.
  if (there?.isFile() === false)
    throw new UserError(`${option} ${path} is no file, but a device or a pipe: name a file.`);
  const folder = dirname(path);
  const kind = kindOf(folder);
  if (kind === undefined) throw new UserError(`${option} ${path}: there is no folder ${folder}. Make it first.`);
  if (!kind.isDirectory()) throw new UserError(`${option} ${path}: ${folder} is no folder.`);
}

function kindOf(path: string) {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined; // Below a file.
  }
}
