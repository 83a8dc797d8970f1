/**
 * All runs below a folder, newest first. Entries are cached and read again only if the run's folder has changed, so
 * that thousands of runs list quickly.
 *
 *     for (const run of listCatalogue('./checkpoints')) console.log(run.name, run.state, run.bytes);
 */
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { makeFolder } from '../../folder.ts';
import { readJson, writeWhole } from '../json-files.ts';
import { liveState, type RunEntry, readEntry } from './entry.ts';

export interface CatalogueOptions {
  /** Path of the cache; false for none. */
  cache?: string | false;
}

type Cached = Record<string, { signature: string; entry: RunEntry }>;

const cacheVersion = 3;
const deepest = 6;

export function listCatalogue(root: string, options: CatalogueOptions = {}): RunEntry[] {
  const folder = realpathSync(root);
  const path = cachePath(folder, options.cache);
  const cached = (path === undefined ? undefined : readJson<Cached>(path)) ?? {};
  const next: Cached = {};
  let changed = false;
  for (const run of findRuns(folder)) {
    const signature = signatureOf(run);
    const known = cached[run];
    if (known?.signature === signature) next[run] = known;
    else {
      next[run] = { signature, entry: readEntry(run) };
      changed = true;
    }
  }
  if (path !== undefined && (changed || Object.keys(next).length !== Object.keys(cached).length)) keep(path, next);
  return Object.values(next)
    .map(({ entry }) => ({ ...entry, state: liveState(entry) }))
    .sort((a, b) => b.created.localeCompare(a.created) || b.name.localeCompare(a.name));
}

/** The run whose folder this is, if it is one. */
export function runAt(path: string): RunEntry | undefined {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return undefined;
  const folder = realpathSync(path);
  if (!isRun(folder, new Set(readdirSync(folder)))) return undefined;
  const entry = readEntry(folder);
  return { ...entry, state: liveState(entry) };
}

function isRun(folder: string, names: ReadonlySet<string>): boolean {
  const isQuantised = names.has('evaluation_results.json') && /\/quantized_[^/]+$/.test(folder);
  return names.has('run.json') || names.has('metrics.jsonl') || isQuantised;
}

/** Finds run folders. Links are not followed, and run folders are not searched for nested runs. */
export function findRuns(folder: string, depth = 0): string[] {
  const entries = readdirSync(folder, { withFileTypes: true });
  if (isRun(folder, new Set(entries.map(({ name }) => name)))) return [folder];
  if (depth >= deepest) return [];
  return entries
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && entry.name !== 'node_modules')
    .flatMap(({ name }) => findRuns(join(folder, name), depth + 1));
}

/** Modification times of the folder and its entries. A subfolder's time changes too when something is added to it. */
function signatureOf(run: string): string {
  const parts = readdirSync(run).map((name) => {
    const found = lstatSync(join(run, name), { throwIfNoEntry: false });
    return found === undefined || name === 'run.lock' ? '' : `${name} ${found.mtimeMs} ${found.size}`;
  });
  return `${cacheVersion} ${createHash('sha256').update(parts.sort().join('\n')).digest('hex')}`;
}

function cachePath(folder: string, cache: CatalogueOptions['cache']): string | undefined {
  if (cache === false) return undefined;
  const home = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const name = createHash('sha256').update(folder).digest('hex').slice(0, 16);
  return join(resolve(cache ?? join(home, 'attune', 'runs')), `${name}.json`);
}

/** Saves the cache. Failing to write it only costs time, so errors are ignored. */
function keep(path: string, cached: Cached): void {
  try {
    if (!existsSync(join(path, '..'))) makeFolder(resolve(path, '..'));
    writeWhole(path, JSON.stringify(cached));
  } catch {
    return;
  }
}
