/**
 * Turns what a user writes for a model (a folder, a run's folder, or `org/name[@revision]`) into a local folder. From the
 * Hugging Face hub it downloads only the files that loading needs.
 *
 *     const folder = await resolveModel('Qwen/Qwen3-0.6B@main', { progress });
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { checkArgument, text } from '../arguments.ts';
import { UserError } from '../errors.ts';
import type { Progress } from '../progress.ts';
import { checkModelFolder, modelFolderOf } from './local.ts';
import { refuseMissingFolder, withFolders } from './mistyped.ts';
import { isRepoName, namedPath, splitRevision } from './place.ts';
import { fetchRepoFiles, isCached, listRepoFiles, openRepo } from './repo.ts';
import type { HubOptions } from './settings.ts';

export {
  type FetchedFiles,
  type FetchOptions,
  fetchRepoFiles,
  listRepoFiles,
  type RepoFile,
  type RepoOptions,
} from './repo.ts';
export type { HubOptions } from './settings.ts';

export interface ResolveOptions extends HubOptions {
  /** Download only the tokenizer's files. */
  tokenizerOnly?: boolean;
  /** Download only the configuration: a model that is only measured needs no tokenizer. */
  configOnly?: boolean;
}

const optionNames: Record<keyof ResolveOptions, true> = {
  ...{ tokenizerOnly: true, configOnly: true, endpoint: true, token: true, cacheDir: true, offline: true },
  ...{ timeoutMs: true, retries: true, backoffMs: true, signal: true, progress: true, env: true },
};
export const resolveOptionNames: readonly string[] = Object.keys(optionNames);

const CONFIGURATION = ['config.json', 'generation_config.json', 'adapter_config.json', 'train_config.json'];
const TEXT =
  /^(tokenizer[^/]*\.json|special_tokens_map\.json|added_tokens\.json|chat_template\.(jinja|json)|vocab\.json|merges\.txt)$/;
const INDEX = 'model.safetensors.index.json';
const PICKLE = /(^|\/)(pytorch_model[^/]*\.bin|adapter_model\.bin|[^/]*\.(pt|pth|ckpt|pkl))$/;

/** The unfinished runs already reported, once per listener. */
const told = new WeakMap<Progress, Set<string>>();

/** Reports that an unfinished run is used in place of a finished one. */
function tellStandIn(model: string, folder: string, progress: Progress | undefined): void {
  if (progress === undefined || basename(folder) === 'final') return;
  const models = told.get(progress) ?? new Set();
  if (models.has(model)) return;
  told.set(progress, models.add(model));
  progress.start(model).done(`the run has no final model; ${basename(folder)} is used`);
}

export async function resolveModel(model: string, options: ResolveOptions = {}): Promise<string> {
  checkArgument('A model', model, text);
  if (model.trim() === '') throw new UserError('The name of a model is empty: give a folder or a name on the hub.');
  const named = namedPath(model);
  const found = await stat(named).catch(() => undefined);
  if (found?.isDirectory()) {
    const folder = modelFolderOf(named);
    const names = await readdir(folder);
    checkModelFolder(model, folder, names);
    await checkFiles(folder, names);
    if (!options.tokenizerOnly && !options.configOnly && names.some((name) => PICKLE.test(name)))
      checkWeights(model, names);
    if (!options.tokenizerOnly && !options.configOnly && folder !== named) tellStandIn(model, folder, options.progress);
    return folder;
  }
  if (found !== undefined)
    throw new UserError(
      `"${model}" is a file. A model is a folder with config.json and safetensors, or a name on the hub.`,
    );
  const [repo = '', revision] = splitRevision(model);
  if (revision === undefined || !isRepoName(model)) await refuseMissingFolder(model, options);
  const opened = await openRepo({ ...options, repo, revision }).catch(async (error: Error) => {
    throw revision === undefined ? await withFolders(model, error) : error;
  });
  const names = opened.files.map((file) => file.path);
  const configuration = names.filter((name) => CONFIGURATION.includes(name));
  if (options.configOnly) {
    await opened.fetch(configuration, options.progress);
    return opened.folder;
  }
  const light = [...configuration, ...names.filter((name) => TEXT.test(name))];
  if (options.tokenizerOnly) {
    if (!names.includes('tokenizer.json')) throw new UserError(`${model} has no tokenizer.json on the hub.`);
    await opened.fetch(light, options.progress);
    return opened.folder;
  }
  checkWeights(model, names);
  if (names.includes(INDEX)) light.push(INDEX);
  await opened.fetch(light, options.progress);
  const weights = await weightFiles(opened.folder, names);
  await opened.fetch(weights, options.progress);
  return opened.folder;
}

/** Refuses pipes and devices under the names of model files: reading one could block for ever. */
async function checkFiles(folder: string, names: readonly string[]): Promise<void> {
  for (const name of names) {
    if (!CONFIGURATION.includes(name) && !TEXT.test(name) && !name.endsWith('.safetensors') && name !== INDEX) continue;
    const found = await stat(join(folder, name)).catch(() => undefined);
    if (found !== undefined && !found.isFile()) throw new UserError(`${join(folder, name)} is not a regular file.`);
  }
}

/** The hub as src/data uses it: dataset names in, local paths out. */
export function datasetHub(options: HubOptions = {}) {
  const place = (repo: string, revision?: string) => ({ ...options, repo, revision, type: 'dataset' as const });
  return {
    async list(repo: string, revision?: string): Promise<string[]> {
      return (await listRepoFiles(place(repo, revision))).files.map((file) => file.path);
    },
    async fetch(repo: string, files: string[], revision?: string): Promise<string[]> {
      const wanted = (path: string) => files.includes(path);
      const { folder } = await fetchRepoFiles({ ...place(repo, revision), patterns: wanted });
      return files.map((file) => join(folder, file));
    },
    isCached: (repo: string): Promise<boolean> => isCached(repo, options, 'dataset'),
  };
}

/**
 * Which weight files to download. Repositories often hold the weights several times (sharded, whole, "consolidated",
 * half precision); one set is enough: the shards of the index, else model.safetensors, else whatever there is. Adapters
 * and heads are added.
 */
async function weightFiles(folder: string, names: readonly string[]): Promise<string[]> {
  const top = names.filter((name) => name.endsWith('.safetensors') && !name.includes('/'));
  const extra = top.filter((name) => name === 'adapter_model.safetensors' || /head/.test(name));
  if (names.includes(INDEX)) {
    const path = join(folder, INDEX);
    let map: unknown;
    try {
      map = JSON.parse(await readFile(path, 'utf8')).weight_map;
    } catch (error) {
      throw new UserError(`${path} is not valid JSON: ${(error as Error).message}`);
    }
    const shards = [...new Set(Object.values((map ?? {}) as Record<string, string>))];
    const absent = shards.filter((shard) => !names.includes(shard));
    if (shards.length === 0 || absent.length > 0) {
      throw new UserError(
        `${path} names weight files that the repository lacks: ${absent.join(', ') || '(none named)'}.`,
      );
    }
    return [...new Set([...shards, ...extra])];
  }
  if (top.includes('model.safetensors')) return ['model.safetensors', ...extra];
  return extra.length > 0 ? extra : top;
}

function checkWeights(model: string, names: readonly string[]): void {
  if (names.some((name) => name.endsWith('.safetensors') && !name.includes('/'))) return;
  const pickles = names.filter((name) => PICKLE.test(name));
  if (pickles.length > 0) {
    throw new UserError(
      `${model} has its weights only as Python pickle (${pickles.slice(0, 3).join(', ')}). Loading a pickle runs whatever code is in it, ` +
        'so attune refuses it. Convert it once where you trust it: load with transformers and save_pretrained(folder), which writes safetensors.',
    );
  }
  const shown = names.slice(0, 12).join(', ');
  throw new UserError(
    `${model} has no safetensors weights. It has: ${shown === '' ? 'nothing' : shown}${names.length > 12 ? ', …' : ''}`,
  );
}
