/** Small files that are read and written whole. */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';

/** undefined if the file does not exist or is not JSON. */
export function readJson<T>(path: string | URL): T | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as T;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (error instanceof SyntaxError || ['ENOENT', 'ENOTDIR'].includes(code)) return undefined;
    throw error;
  }
}

/** Writes to a temporary file and renames it, so that readers see the old content or the new. */
export function writeWhole(path: string, content: string | Uint8Array): void {
  const temporary = `${path}.${process.pid}.part`;
  try {
    writeFileSync(temporary, content);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

export const writeJson = (path: string, value: unknown) => writeWhole(path, `${JSON.stringify(value, null, 2)}\n`);
