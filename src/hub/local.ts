/**
 * The model folder that a folder stands for. For a run's folder that is its final model, else its best one, else its
 * newest checkpoint; any other folder stands for itself.
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { UserError } from '../errors.ts';

const modelFiles = ['config.json', 'adapter_config.json', 'tokenizer.json'];
/**
 * What a folder may have instead of these: pickled weights, a tokenizer in older files. Later checks say what to do.
 */
const foreignFiles = /\.(bin|pt|pth|ckpt|pkl)$|^(vocab\.(json|txt)|tokenizer\.model)$/;

export function modelFolderOf(folder: string): string {
  if (!isRun(folder)) return folder;
  const steps = readdirSync(folder)
    .flatMap((name) => {
      const step = /^(?:step|checkpoint)-(\d+)$/.exec(name)?.[1];
      return step === undefined ? [] : [{ name, step: Number(step) }];
    })
    .sort((a, b) => b.step - a.step);
  const saved = ['final', 'best_model', ...steps.map(({ name }) => name)];
  const found = saved.map((name) => join(folder, name)).find(hasModel);
  if (found === undefined) throw new UserError(`${folder} is a run that has saved no model yet.`);
  return found;
}

/**
 * The folder of an adapter's base, if it is on this disk: a relative path starts at the current folder, or at the
 * adapter's own.
 */
export function adapterBaseFolder(adapter: string, base: string): string | undefined {
  return [resolve(base), resolve(adapter, base)].find((place) =>
    ['adapter_config.json', 'config.json'].some((file) => existsSync(join(place, file))),
  );
}

/** Refuses a folder without any of a model's files, and names a model inside it. */
export function checkModelFolder(model: string, folder: string, names: readonly string[]): void {
  if (hasModel(folder) || names.some((name) => foreignFiles.test(name))) return;
  const inside = names.find(
    (name) => statSync(join(folder, name), { throwIfNoEntry: false })?.isDirectory() && hasModel(join(folder, name)),
  );
  const advice = inside === undefined ? '' : ` Did you mean "${join(model, inside)}"?`;
  const shown = names.slice(0, 6).join(', ') || 'nothing';
  throw new UserError(
    `The folder "${model}" holds no model: a model has config.json and safetensors, an adapter adapter_config.json. It holds: ${shown}${names.length > 6 ? ', …' : ''}.${advice}`,
  );
}

/** A run's folder also has a config.json, that of the training, so the config alone does not make a folder a model. */
const isRun = (folder: string) =>
  existsSync(join(folder, 'run.json')) && !existsSync(join(folder, 'tokenizer.json')) && !hasWeights(folder);

const hasModel = (folder: string) => hasWeights(folder) || modelFiles.some((name) => existsSync(join(folder, name)));

const hasWeights = (folder: string) =>
  existsSync(folder) && readdirSync(folder).some((name) => name.endsWith('.safetensors'));
