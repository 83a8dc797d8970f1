/** Which reader a file needs, which files a folder holds, and which split each of them belongs to. */
import { existsSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { suggestion, UserError } from '../../errors.ts';
import { lookup } from '../../lookup.ts';
import { readCsv } from './csv.ts';
import { isMetadataName, readJson } from './json.ts';
import { readJsonl } from './jsonl.ts';
import { readParquet } from './parquet.ts';
import type { RowReader } from './row.ts';

const readers: Record<string, RowReader> = {
  jsonl: readJsonl,
  ndjson: readJsonl,
  json: readJson,
  csv: readCsv,
  tsv: readCsv,
  parquet: readParquet,
};

export const knownKinds = 'jsonl, json, csv, tsv (each also .gz or .zst) and parquet';

export function readerFor(path: string): RowReader | undefined {
  const kind = /\.([a-z]+)(\.gz|\.zst)?$/i.exec(basename(path))?.[1]?.toLowerCase();
  return kind === undefined ? undefined : lookup(readers, kind);
}

/** The data files among these paths, without metadata files. */
export function dataFiles(paths: readonly string[]): string[] {
  return paths
    .filter((path) => readerFor(path) !== undefined && !isMetadataName(basename(path)))
    .filter((path) => !path.split('/').some((part) => part.startsWith('.') && part !== '.' && part !== '..'))
    .sort();
}

/** All data files under a folder, as paths relative to it. */
export function listFolder(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return dataFiles(
    entries
      .filter((entry) => !entry.isDirectory())
      .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/')),
  );
}

const splitNames: Record<string, string> = {
  train: 'train',
  training: 'train',
  test: 'test',
  validation: 'validation',
  valid: 'validation',
  val: 'validation',
  dev: 'validation',
  eval: 'validation',
  evaluation: 'validation',
};

/**
 * The split that a path names: `data/train-00000-of-00002.parquet`, `helpful.test.jsonl.gz`, `main/test/x.json`.
 * Names such as `train_prefs` count as splits of their own.
 */
export function splitOf(path: string): string | undefined {
  for (const part of path.split('/').reverse()) {
    const stem = part.replace(/\.(jsonl|ndjson|json|csv|tsv|parquet)(\.gz|\.zst)?$/i, '');
    const compound = /^((?:train|test|validation)_[a-z0-9]+)(?:-\d|$)/i.exec(stem)?.[1];
    if (compound !== undefined) return compound.toLowerCase();
    for (const word of stem
      .toLowerCase()
      .split(/[^a-z]+/)
      .reverse()) {
      if (Object.hasOwn(splitNames, word)) return splitNames[word];
    }
  }
  return undefined;
}

/**
 * The files of one split. Without `split`: the training files; if no name says training, all but the test files; else
 * all files. A file whose name says nothing is a training file, and `train_prefs` is a training split.
 */
export function filesOfSplit(files: readonly string[], split: string | undefined, name: string): string[] {
  if (split === 'all') return [...files];
  const named = (wanted: string) => {
    const exact = files.filter((file) => splitOf(file) === wanted);
    return exact.length > 0 ? exact : files.filter((file) => splitOf(file)?.startsWith(`${wanted}_`));
  };
  const unnamed = files.filter((file) => splitOf(file) === undefined);
  if (split === undefined) {
    const kept = files.filter((file) => !/^(test|validation)(_|$)/.test(splitOf(file) ?? ''));
    return [named('train'), kept, [...files]].find((choice) => choice.length > 0) ?? [];
  }
  const wanted = lookup(splitNames, split) ?? split;
  const found = [named(wanted), wanted === 'train' ? unnamed : []].find((choice) => choice.length > 0);
  if (found !== undefined) return found;
  const known = [...new Set(files.map(splitOf).filter((one) => one !== undefined))];
  const there = known.length === 0 ? 'its file names speak of no splits' : `it has ${known.join(', ')}`;
  throw new UserError(`${name}: no split "${split}" (--split); ${there}.${suggestion(split, known)}`);
}

/** The files of one subset: folders and the file's own stem name subsets (`main/train-0.parquet`, `data/rl/…`). */
export function filesOfSubset(files: readonly string[], subset: string | undefined, name: string): string[] {
  if (subset === undefined) return [...files];
  const chosen = files.filter((file) => subsetsOf(file).includes(subset));
  if (chosen.length > 0) return chosen;
  const names = [...new Set(files.flatMap(subsetsOf))];
  throw new UserError(
    `${name}: no subset "${subset}". There are: ${names.join(', ') || 'none'}.${suggestion(subset, names)}`,
  );
}

function subsetsOf(file: string): string[] {
  const parts = file.split('/');
  const stem = (parts.pop() ?? '').replace(/\..*$/, '').replace(/-\d{5}-of-\d{5}$/, '');
  return [...parts.filter((part) => part !== 'data'), stem];
}

/** The files behind a path. */
export interface LocalFiles {
  files: string[];
  /** Data files of the folder that belong to other splits or subsets. */
  leftAside: string[];
}

/** Files behind a path: the file itself, or the contents of the folder. Undefined if nothing is there. */
export function localFiles(path: string, wish: { split?: string; subset?: string } = {}): LocalFiles | undefined {
  if (!existsSync(path)) return undefined;
  const found = statSync(path);
  if (!found.isDirectory()) {
    if (!found.isFile()) throw new UserError(`${path}: not a regular file; data are read from files.`);
    if (readerFor(path) === undefined) {
      throw new UserError(`${path}: not a kind of file that can be read as a dataset. Known are ${knownKinds}.`);
    }
    if (wish.subset !== undefined) {
      throw new UserError(`${path}: one file has no subsets; --subset ${wish.subset} is for folders and hub datasets.`);
    }
    return { files: filesOfSplit([basename(path)], wish.split, path).map(() => path), leftAside: [] };
  }
  const all = listFolder(path);
  if (all.length === 0) throw new UserError(`${path}: the folder holds no data files (${knownKinds}).`);
  const chosen = filesOfSplit(filesOfSubset(all, wish.subset, path), wish.split, path);
  return { files: chosen.map((file) => join(path, file)), leftAside: all.filter((file) => !chosen.includes(file)) };
}

/**
 * Whether a name that could be a hub name is a path: it ends like a data file, or its first part is a folder here. A
 * repository of that name can be reached with its revision, `owner/name@main`, or once it is in the cache.
 */
export function isMistypedPath(name: string): boolean {
  return !name.includes('@') && (dataFiles([name]).length > 0 || folderHere(name) !== undefined);
}

/** The first part of a hub name, if it is a folder here. */
function folderHere(name: string): string | undefined {
  const [folder = ''] = name.split('/');
  return isHubName(name) && isFolder(folder) ? folder : undefined;
}

const mayHoldData = (path: string) => isFolder(path) || (existsSync(path) && readerFor(path) !== undefined);
const isFolder = (path: string) => existsSync(path) && statSync(path).isDirectory();
const isHubName = (name: string) => /^[\w-][\w.-]*\/[\w.-]+$/.test(name);

/** The error for a path that does not exist; it suggests the most similar existing name. */
export function missingPath(path: string): UserError {
  const target = linkTarget(path);
  if (target !== undefined) return new UserError(`${path} is a link to ${target}, where there is nothing.`);
  const folder = dirname(resolve(path));
  const names = isFolder(folder) ? readdirSync(folder).filter((name) => mayHoldData(join(folder, name))) : [];
  const parent = folderHere(path);
  const where = parent === undefined ? '' : `; ${parent}/ is a folder here`;
  const hub = isHubName(path) ? ` For the hub's dataset of that name, write ${path}@main.` : '';
  return new UserError(`${path}: no such file or folder${where}.${suggestion(basename(path), names)}${hub}`);
}

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined; // Nothing, or no link.
  }
}
