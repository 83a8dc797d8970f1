/** A path as it is typed in the folder that the studio was started in: what command lines take. */
import { relative } from 'node:path';

export function shownHere(path: string): string {
  const near = relative(process.cwd(), path);
  return near === '' || near.startsWith('..') ? path : near;
}
