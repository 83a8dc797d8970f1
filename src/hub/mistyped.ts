/** Model names that are mistyped paths: they are refused with advice, if possible before the hub is asked. */
import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { AttuneError, nearest, UserError } from '../errors.ts';
import { isFolder, isRepoName, namedPath } from './place.ts';
import { isCached } from './repo.ts';
import { HubUnreachable } from './request.ts';
import type { HubOptions } from './settings.ts';

/** The folders in which training and quantisation save models by default; no well-known repository has such a name. */
const savedFolder =
  /^(checkpoints|outputs|quantized_models)\/|\/(final|best_model|(step|checkpoint)-\d+|quantized_int[48])$/;

/**
 * Refuses names that only a path can have: `models/nope` if a folder `models` exists, and `run/final`. A repository of
 * that name can be reached with its revision, or once it is in the cache.
 */
export async function refuseMissingFolder(model: string, options: HubOptions): Promise<void> {
  const target = await readlink(namedPath(model)).catch(() => undefined);
  if (target !== undefined) throw new MissingFolder(`"${model}" is a link to ${target}, where there is nothing.`);
  if (!isRepoName(model)) throw new MissingFolder(`The folder "${model}" does not exist.${await nearFolder(model)}`);
  const [parent = ''] = model.split('/');
  const isBeside = model.includes('/') && (await isFolder(parent));
  if (!isBeside && !savedFolder.test(model)) return;
  if (await isCached(model, options)) return;
  const where = isBeside ? `; ${parent}/ is a folder here` : '';
  throw new MissingFolder(`The folder "${model}" does not exist${where}.${await nearFolder(model)}`, model);
}

/** The error for a missing folder. An adapter's base is named in a file, so its reader needs other advice. */
export class MissingFolder extends UserError {
  readonly fault: string;
  /** The hub repository that could be meant. */
  readonly repo: string | undefined;

  constructor(fault: string, repo?: string) {
    super(repo === undefined ? fault : `${fault} For the hub's repository of that name, write ${repo}@main.`);
    this.fault = fault;
    this.repo = repo;
  }
}

/** A name that the hub cannot be asked for, or does not know, may be a mistyped folder: the error then says so. */
export async function withFolders(model: string, error: Error): Promise<Error> {
  if (!(error instanceof AttuneError)) return error;
  const near = await nearFolder(model);
  if (near !== '' || error instanceof HubUnreachable) error.message += ` Nor is there a folder "${model}" here.${near}`;
  return error;
}

/**
 * ` Did you mean "models/tiny"?` for `modles/tiny`: replaces each part of the path by the most similar existing folder.
 */
async function nearFolder(model: string): Promise<string> {
  const parts = model.split('/').filter((part) => part !== '');
  let near = model.startsWith('/') ? '/' : '';
  for (const part of parts) {
    const folders = await foldersIn(namedPath(near || '.'));
    const found = /^(\.\.?|~)$/.test(part) || folders.includes(part) ? part : nearest(part, folders);
    if (found === undefined) return '';
    near = join(near, found);
  }
  return parts.length === 0 ? '' : ` Did you mean "${near}"?`;
}

/** The folders in a folder, including links; broken links are left out. */
async function foldersIn(path: string): Promise<string[]> {
  const names = await readdir(path).catch(() => []);
  const folders = await Promise.all(names.map((name) => isFolder(join(path, name))));
  return names.filter((_, i) => folders[i]);
}
