/**
 * The one folder that a studio shows. What the page names by a path is resolved with all links followed and must lie
 * below that folder; runs are named by an id, a hash of their path, which is looked up and never becomes a path.
 *
 *     const root = new Root('./checkpoints');
 *     root.idOf('/home/me/checkpoints/grpo/run');      // 'f3b1…'
 *     root.inside('data/pairs.jsonl');                 // its real path; a 404 where it leads outside
 */
import { createHash } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { basename, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { ApiError } from '../../serve/api-error.ts';

export class Root {
  /** With all links followed. */
  readonly path: string;

  constructor(folder: string) {
    this.path = realpathSync(resolve(folder));
  }

  idOf(path: string): string {
    return createHash('sha256').update(relative(this.path, path)).digest('hex').slice(0, 16);
  }

  /** The real path of what lies below the root; links that lead outside are refused as if nothing were there. */
  inside(given: string): string {
    const found = this.find(given);
    if (found === undefined)
      throw new ApiError(404, `There is no "${given.slice(0, 200)}" below the studio's folder.`, { code: 'not_found' });
    return found;
  }

  find(given: string): string | undefined {
    if (given.includes('\0')) return undefined;
    try {
      const real = realpathSync(isAbsolute(given) ? given : join(this.path, given));
      return this.holds(real) ? real : undefined;
    } catch {
      return undefined;
    }
  }

  /** A path below the root as it is, with or without a file there; a 404 where it is a link that leads outside. */
  own(path: string): string {
    if (existsSync(path) && this.find(path) === undefined)
      throw new ApiError(404, `${basename(path)} is a link that leads outside of the studio's folder.`, {
        code: 'not_found',
      });
    return path;
  }

  /** Whether a real path is the root or lies below it. */
  holds(real: string): boolean {
    const way = relative(this.path, real);
    return way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way);
  }

  /** The path below the root, for people. */
  shown(path: string): string {
    return this.holds(path) ? relative(this.path, path) || '.' : path;
  }
}
