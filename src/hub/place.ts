/** What a model's name means on this machine. The hub is not asked and nothing is downloaded. */
import { readFile, realpath, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { UserError } from '../errors.ts';
import { RepoCache } from './cache.ts';
import { adapterBaseFolder, modelFolderOf } from './local.ts';
import { holdSameModel } from './same-files.ts';
import { type HubOptions, hubSettings } from './settings.ts';

/** The path that a name would be. */
export const namedPath = (model: string): string => resolve(model.replace(/^~(?=\/|$)/, homedir()));

/** Splits "org/name@revision". */
export function splitRevision(model: string): [string, string | undefined] {
  const at = model.indexOf('@');
  if (at < 0) return [model, undefined];
  if (at === model.length - 1) throw new UserError(`"${model}" ends in "@"; a branch, tag or commit should follow.`);
  return [model.slice(0, at), model.slice(at + 1)];
}

/** Whether a name can be a hub name. */
export const isRepoName = (model: string): boolean =>
  !/^[./~]|\\|\/$/.test(model) && splitRevision(model)[0].split('/').length <= 2;

/**
 * Whether two names mean the same model, as far as this machine can tell: one place, or a copy with the same bytes. If
 * the first no longer exists here, the second is assumed to be its new place.
 */
export async function isSameModel(was: string, is: string, options: HubOptions = {}): Promise<boolean> {
  if (was === is) return true;
  const [before, now] = await Promise.all([was, is].map((name) => placeOf(name, options)));
  if (before !== undefined) return now !== undefined && holdSame(before, now, options);
  if (!isRepoName(was) || (await isFolder(namedPath(is)))) return true;
  return repoPlace(was) === repoPlace(is);
}

/** Adapters must also have the same base; the same relative path in each may lead to different ones. */
async function holdSame(before: string, now: string, options: HubOptions): Promise<boolean> {
  const [one, other] = await Promise.all([before, now].map((folder) => realpath(folder)));
  if (one !== other && !(await holdSameModel(before, now).catch(() => false))) return false;
  const [base, otherBase] = await Promise.all([before, now].map(baseOf));
  if (base === undefined || otherBase === undefined) return base === otherBase;
  return isSameModel(base, otherBase, options);
}

/** The name or folder of an adapter's base; undefined if the folder holds no adapter. */
async function baseOf(folder: string): Promise<string | undefined> {
  const text = await readFile(join(folder, 'adapter_config.json'), 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  try {
    const { base_model_name_or_path: base, revision } = JSON.parse(text);
    if (typeof base !== 'string') return undefined;
    const place = adapterBaseFolder(folder, base) ?? (typeof revision === 'string' ? `${base}@${revision}` : base);
    return place === resolve(folder) ? undefined : place;
  } catch {
    return undefined; // such as one that names itself, which is refused on loading
  }
}

/** A model's folder, or its copy's in the hub's cache; undefined if there is neither. */
async function placeOf(model: string, options: HubOptions): Promise<string | undefined> {
  const path = namedPath(model);
  if (await isFolder(path)) return modelFolderOf(path);
  if (!isRepoName(model)) return undefined;
  const [repo, revision = 'main'] = splitRevision(model);
  const cache = new RepoCache((await hubSettings(options)).cacheDir, 'model', repo);
  const commit = await cache.commitOf(revision);
  const snapshot = commit === undefined ? undefined : cache.snapshot(commit);
  return snapshot !== undefined && (await isFolder(snapshot)) ? snapshot : undefined;
}

export const isFolder = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined))?.isDirectory() ?? false;

function repoPlace(model: string): string {
  const [repo, revision = 'main'] = splitRevision(model);
  return `${repo}@${revision}`;
}
