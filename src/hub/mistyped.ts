/** Names of models that are mistyped paths: they are refused with advice, where possible before the hub is asked. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { nearest, UserError } from '../errors.ts';
import { isRepoName, namedPath } from './place.ts';
import { isCached } from './repo.ts';
import { HubUnreachable } from './request.ts';
import type { HubOptions } from './settings.ts';

/** The folders that trainings and quantisation save models in by default; no repository of note is called so. */
const savedFolder =
  /^(checkpoints|outputs|quantized_models)\/|\/(final|best_model|(step|checkpoint)-\d+|quantized_int[48])$/;

/**
 * Refuses names that only a path can have, `models/nope` where a folder `models` exists, and `run/final`. A repository
 * that is called so is reached with its revision, or once it is in the cache.
 */
export async function refuseMissingFolder(model: string, options: HubOptions): Promise<void> {
  if (!isRepoName(model)) throw new UserError(`The folder "${model}" does not exist.${await nearFolder(model)}`);
  const [parent = ''] = model.split('/');
  const beside = model.includes('/') ? await readdir(parent).catch(() => undefined) : undefined;
  if (beside === undefined && !savedFolder.test(model)) return;
  if (await isCached(model, options)) return;
  const where = beside === undefined ? '' : `; ${parent}/ is a folder here`;
  throw new UserError(
    `The folder "${model}" does not exist${where}.${await nearFolder(model)} For the hub's repository of that name, write ${model}@main.`,
  );
}

/** A name that the hub cannot be asked for, or does not know, may be that of a folder, mistyped. */
export async function withFolders(model: string, error: Error): Promise<Error> {
  const near = await nearFolder(model);
  if (near === '' && !(error instanceof HubUnreachable)) return error;
  const message = `${error.message} Nor is there a folder "${model}" here.${near}`;
  if (near !== '') return new UserError(message);
  error.message = message;
  return error;
}

/** ` Did you mean "models/tiny"?` for `modles/tiny`: each part of the path is taken for the nearest folder there is. */
async function nearFolder(model: string): Promise<string> {
  const parts = model.split('/').filter((part) => part !== '');
  let near = model.startsWith('/') ? '/' : '';
  for (const part of parts) {
    const beside = await readdir(namedPath(near || '.'), { withFileTypes: true }).catch(() => []);
    const folders = beside.filter((entry) => !entry.isFile()).map(({ name }) => name);
    const found = /^(\.\.?|~)$/.test(part) || folders.includes(part) ? part : nearest(part, folders);
    if (found === undefined) return '';
    near = join(near, found);
  }
  return parts.length === 0 ? '' : ` Did you mean "${near}"?`;
}
