/**
 * The runs below the root, by id. The list is read again at most once a second; an id is looked up in it and never
 * becomes a path.
 */
import { realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { listCatalogue } from '../../runs/catalogue/catalogue.ts';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { Root } from '../http/folder.ts';

const freshMs = 1000;

export class Catalogue {
  readonly root: Root;
  readonly #cache: string | undefined;
  #entries: RunEntry[] = [];
  #readAt = Number.NEGATIVE_INFINITY;

  /** `cache`: folder of the list's cache; the user's own unless given. */
  constructor(root: Root, cache?: string) {
    this.root = root;
    this.#cache = cache;
  }

  all(): readonly RunEntry[] {
    if (performance.now() - this.#readAt > freshMs) {
      this.#entries = listCatalogue(this.root.path, this.#cache === undefined ? {} : { cache: this.#cache });
      this.#readAt = performance.now();
    }
    return this.#entries;
  }

  /** The next call reads the folders again. */
  changed(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
  }

  idOf(entry: Pick<RunEntry, 'path'>): string {
    return this.root.idOf(entry.path);
  }

  /** The run of an id; its folder, with all links followed, still lies below the root. */
  find(id: string): RunEntry {
    let found = this.all().find((entry) => this.idOf(entry) === id);
    // a run that has just begun may have been read before its run.json was there
    if (found === undefined || found.state === 'unknown') {
      this.changed();
      found = this.all().find((entry) => this.idOf(entry) === id);
    }
    if (found === undefined || !this.#isThere(found))
      throw new ApiError(404, 'There is no such run. It may have been deleted.', { code: 'not_found' });
    return found;
  }

  #isThere({ path }: RunEntry): boolean {
    try {
      return this.root.holds(realpathSync(path));
    } catch {
      return false;
    }
  }
}

/** When something in the run was last written. */
export function updatedAt({ path, created }: RunEntry): number {
  const times = ['metrics.jsonl', 'run.json'].flatMap(
    (name) => statSync(join(path, name), { throwIfNoEntry: false })?.mtimeMs ?? [],
  );
  return Math.round(Math.max(Date.parse(created), ...times));
}
