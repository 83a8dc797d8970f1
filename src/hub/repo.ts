/**
 * A repository of the hub: its listing, and its files through the cache that Python's huggingface_hub uses too.
 *
 *     const { folder, files } = await fetchRepoFiles({ repo: 'openai/gsm8k', type: 'dataset', patterns: ['main/*.parquet'] });
 */
import { readdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { type AttuneError, UserError } from '../errors.ts';
import type { Progress } from '../progress.ts';
import { fileSize, RepoCache, type RepoFile } from './cache.ts';
import { downloadBlob } from './download.ts';
import { commitOf, listTree } from './listing.ts';
import { HubUnreachable, placeName, type RepoPlace } from './request.ts';
import { type HubOptions, type HubSettings, hubSettings } from './settings.ts';

export type { RepoFile } from './cache.ts';

export interface RepoOptions extends HubOptions {
  repo: string;
  type?: 'model' | 'dataset';
  /** Branch, tag or commit. */
  revision?: string;
}

export interface FetchOptions extends RepoOptions {
  /** Which files: names, or patterns in which `*` also matches slashes (as in Python). All files by default. */
  patterns?: readonly string[] | ((path: string) => boolean);
}

export interface FetchedFiles {
  folder: string;
  commit: string;
  files: string[];
}

/** A repository at one commit: as the hub lists it or, offline, as the cache knows it. */
export interface OpenRepo {
  place: RepoPlace;
  commit: string;
  files: RepoFile[];
  folder: string;
  /** Downloads these files into `folder` if they are missing. */
  fetch(paths: readonly string[], progress?: Progress): Promise<void>;
}

const PARALLEL_DOWNLOADS = 4;

export async function listRepoFiles(options: RepoOptions): Promise<{ commit: string; files: RepoFile[] }> {
  const { commit, files } = await openRepo(options);
  return { commit, files };
}

export async function fetchRepoFiles(options: FetchOptions): Promise<FetchedFiles> {
  const repo = await openRepo(options);
  const { patterns } = options;
  const wanted = typeof patterns === 'function' ? patterns : patternFilter(patterns);
  const files = repo.files.map((file) => file.path).filter(wanted);
  const absent = Array.isArray(patterns) ? patterns.filter((p) => !/[*?[]/.test(p) && !files.includes(p)) : [];
  if (absent.length > 0 || files.length === 0) {
    const asked =
      absent.length > 0
        ? absent.join(', ')
        : typeof patterns === 'function'
          ? 'any wanted file'
          : (patterns?.join(', ') ?? 'any file');
    const has = repo.files.slice(0, 12).map((file) => file.path);
    throw new UserError(
      `${placeName(repo.place)} has not ${asked}. It has: ${has.join(', ')}${repo.files.length > 12 ? ', …' : ''}`,
    );
  }
  await repo.fetch(files, options.progress);
  return { folder: repo.folder, commit: repo.commit, files };
}

/** Whether any revision of a repository has been downloaded before. */
export async function isCached(
  repo: string,
  options: HubOptions = {},
  type: RepoPlace['type'] = 'model',
): Promise<boolean> {
  const { cacheDir } = await hubSettings(options);
  const { folder } = new RepoCache(cacheDir, type, repo);
  return (await readdir(join(folder, 'snapshots')).catch(() => [])).length > 0;
}

export async function openRepo(options: RepoOptions): Promise<OpenRepo> {
  const settings = await hubSettings(options);
  const place: RepoPlace = {
    repo: checkedName(options.repo),
    type: options.type ?? 'model',
    revision: checkedRevision(options.revision ?? 'main'),
  };
  const cache = new RepoCache(settings.cacheDir, place.type, place.repo);
  if (settings.offline)
    return openCached(
      place,
      cache,
      (lack) =>
        new UserError(`${lack}, and offline mode is on: fetch it once without HF_HUB_OFFLINE, or name a folder.`),
    );
  try {
    return await openRemote(place, cache, settings);
  } catch (error) {
    if (!(error instanceof HubUnreachable)) throw error;
    return openCached(
      place,
      cache,
      (lack) => new HubUnreachable(`${lack}, and the hub cannot be asked: ${error.message}`),
    );
  }
}

async function openRemote(place: RepoPlace, cache: RepoCache, settings: HubSettings): Promise<OpenRepo> {
  const commit = await commitOf(place, settings);
  const files = await listTree(place, commit, settings);
  const folder = cache.snapshot(commit);
  return {
    place,
    commit,
    files,
    folder,
    async fetch(paths, progress) {
      const wanted = files.filter((file) => paths.includes(file.path));
      await fetchFiles(wanted, place, commit, cache, settings, progress);
      await cache.writeListing(commit, files);
      await cache.writeRef(place.revision, commit);
    },
  };
}

async function fetchFiles(
  files: readonly RepoFile[],
  place: RepoPlace,
  commit: string,
  cache: RepoCache,
  settings: HubSettings,
  progress: Progress | undefined,
): Promise<void> {
  const missing: RepoFile[] = [];
  for (const file of files) {
    if ((await fileSize(join(cache.snapshot(commit), file.path))) !== file.size) missing.push(file);
  }
  if (missing.length === 0) return;
  const bytes = missing.reduce((sum, file) => sum + file.size, 0);
  await checkSpace(settings.cacheDir, bytes, place);
  const bar = progress?.start(`fetching ${placeName(place)}`, bytes, 'bytes');
  const stop = new AbortController();
  const signals = [stop.signal, ...(settings.signal === undefined ? [] : [settings.signal])];
  const each: HubSettings = { ...settings, signal: AbortSignal.any(signals) };
  const prefix = place.type === 'dataset' ? 'datasets/' : '';
  const queue = [...missing];
  const worker = async () => {
    for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
      const path = file.path.split('/').map(encodeURIComponent).join('/');
      const url = `${settings.endpoint}/${prefix}${place.repo}/resolve/${commit}/${path}`;
      const download = { file, url, place: { ...place, path: file.path }, onBytes: (n: number) => bar?.advance(n) };
      await downloadBlob(download, cache, each);
      await cache.link(commit, file);
    }
  };
  const workers = Array.from({ length: PARALLEL_DOWNLOADS }, () =>
    worker().catch((error) => {
      // One failed file fails the whole. What the other downloads have so far stays for the next attempt.
      stop.abort(error);
      throw error;
    }),
  );
  const failed = (await Promise.allSettled(workers)).find((result) => result.status === 'rejected');
  if (failed !== undefined) {
    settings.signal?.throwIfAborted();
    throw stop.signal.reason ?? failed.reason;
  }
  bar?.done();
}

/** The repository as the cache has it; `failure` makes the error for what the cache lacks. */
async function openCached(
  place: RepoPlace,
  cache: RepoCache,
  failure: (lack: string) => AttuneError,
): Promise<OpenRepo> {
  const commit = await cache.commitOf(place.revision);
  const folder = commit === undefined ? undefined : cache.snapshot(commit);
  const present = folder === undefined ? [] : await snapshotFiles(folder);
  if (commit === undefined || folder === undefined || present.length === 0) {
    throw failure(`${placeName(place)} is not in the cache (${cache.folder})`);
  }
  const files = (await cache.listing(commit)) ?? present;
  return {
    place,
    commit,
    files,
    folder,
    async fetch(paths) {
      const missing = paths.filter((path) => !present.some((file) => file.path === path));
      if (missing.length > 0) throw failure(`The cached copy of ${placeName(place)} lacks ${missing.join(', ')}`);
    },
  };
}

async function snapshotFiles(folder: string): Promise<RepoFile[]> {
  const paths = await readdir(folder, { recursive: true }).catch(() => []);
  const files: RepoFile[] = [];
  for (const path of paths) {
    // A link whose blob was deleted has no size: the file counts as missing.
    const size = await fileSize(join(folder, path));
    if (size !== undefined) files.push({ path: path.replaceAll('\\', '/'), size, etag: '' });
  }
  return files;
}

async function checkSpace(folder: string, bytes: number, place: RepoPlace): Promise<void> {
  const disk = await statfs(folder).catch(() => undefined);
  const free = disk === undefined ? Number.POSITIVE_INFINITY : disk.bavail * disk.bsize;
  if (bytes <= free) return;
  const gb = (value: number) => `${(value / 1e9).toFixed(1)} GB`;
  throw new UserError(
    `${placeName(place)} needs ${gb(bytes)}, but ${folder} has ${gb(free)} left. Free some, or set HF_HOME to another disk.`,
  );
}

function patternFilter(patterns: readonly string[] | undefined): (path: string) => boolean {
  if (patterns === undefined) return () => true;
  const expressions = patterns.map((pattern) => {
    const source = pattern
      .replace(/[\\^$.+(){}|]/g, '\\$&')
      .replaceAll('*', '.*')
      .replaceAll('?', '.')
      .replaceAll('[!', '[^');
    return new RegExp(`^${source}$`, 's');
  });
  return (path) => expressions.some((expression) => expression.test(path));
}

function checkedName(repo: string): string {
  if (/^[A-Za-z0-9][\w.-]*(\/[A-Za-z0-9_][\w.-]*)?$/.test(repo) && !repo.includes('..') && !repo.includes('--'))
    return repo;
  throw new UserError(`"${repo}" is not a name on the hub; names look like "org/name".`);
}

/** A revision becomes a file name in the cache, so it must be a valid git name: no "..", no leading slash. */
function checkedRevision(revision: string): string {
  const odd = /^[/.-]|[/.]$|\.\.|\/[/.]|[\s~^:?*[\]\\]|@\{/.test(revision) || /[^\x21-\u{10ffff}]|\x7f/u.test(revision);
  if (revision !== '' && revision.length <= 200 && !odd) return revision;
  throw new UserError(`${JSON.stringify(revision)} is not a revision; take a branch, a tag or a commit.`);
}
