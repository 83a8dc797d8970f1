/**
 * Where models and datasets may lie. A name from the page is a path below the studio's folder or below one of the
 * folders that it lists, with all links followed, or a name on the hub; no other path is opened.
 */
import { existsSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { ApiError } from '../../serve/api-error.ts';
import { Root } from '../http/folder.ts';

/** owner/name or name, with an optional @revision. */
const hubName = /^[A-Za-z0-9][\w.-]*(\/[A-Za-z0-9][\w.-]*)?(@[\w./-]+)?$/;

export class ModelPlaces {
  readonly root: Root;
  readonly folders: readonly Root[];
  readonly #named: ReadonlySet<string>;

  /** `named`: models that the user gave on the command line, wherever they lie. */
  constructor(root: Root, folders: readonly string[], named: readonly string[] = []) {
    this.root = root;
    this.folders = [root, ...folders.filter((folder) => existsSync(folder)).map((folder) => new Root(folder))];
    this.#named = new Set(named);
  }

  /** What to load for a name; a 404 where it is no hub name and leads outside. */
  find(name: string): string {
    if (this.#named.has(name)) return name;
    const found = this.#path(name);
    if (found !== undefined) return found;
    const isPath = existsSync(resolve(name)) || name.includes('\0') || name.startsWith('.') || name.startsWith('/');
    if (!isPath && hubName.test(name)) return name;
    throw new ApiError(404, `There is no "${name.slice(0, 200)}" in the studio's folders.`, { code: 'not_found' });
  }

  /** Whether a path that a command would open, as typed where the studio was started, lies where it may; so does one that is not there. */
  allows(path: string): boolean {
    if (this.#named.has(path)) return true;
    if (path.includes('\0')) return false;
    const typed = resolve(path);
    if (!existsSync(typed)) return true;
    const real = realpathSync(typed);
    return this.folders.some((folder) => folder.holds(real));
  }

  /** As typed where the studio was started, or below its folder. */
  #path(name: string): string | undefined {
    if (name.includes('\0')) return undefined;
    for (const candidate of [resolve(name), resolve(this.root.path, name)]) {
      if (!existsSync(candidate)) continue;
      const real = realpathSync(candidate);
      if (this.folders.some((folder) => folder.holds(real))) return real;
    }
    return undefined;
  }
}
