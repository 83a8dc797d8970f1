/** What the system refuses to read or write, in words; its own name a call and no way on. */

import { accessSync, constants } from 'node:fs';
import { dirname } from 'node:path';

const reading = ['scandir', 'stat', 'lstat', 'access', 'readlink', 'read'];

/** What to say of an error that is the system's word for a missing permission or a read-only disk; undefined of any other. */
export function deniedWords(error: unknown): string | undefined {
  const { code, path, syscall = '' } = (error ?? {}) as NodeJS.ErrnoException;
  // The file may be one of ours, under a name that it has only until it is complete: the folder is what the user knows.
  if (code === 'EROFS' && path !== undefined) return `${dirname(path)}: the file system is read-only.`;
  if ((code !== 'EACCES' && code !== 'EPERM') || path === undefined) return undefined;
  if (syscall === 'open') return refusedOpening(path);
  return `${path}: no permission to ${reading.includes(syscall) ? 'read it' : 'write there'}.`;
}

/** The system does not say what a file was opened for: one that can be read, or that is not there, was to be written. */
function refusedOpening(path: string): string {
  try {
    accessSync(path, constants.R_OK);
    return `${path}: no permission to write there.`;
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    return isMissing ? `${dirname(path)}: no permission to write there.` : `${path}: no permission to read it.`;
  }
}
