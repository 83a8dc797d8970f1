/**
 * The model that a folder stands for: itself, or, where it is a run, what the run saved: its final model, else the best one,
 * else the newest checkpoint.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../errors.ts';

const modelFiles = ['config.json', 'adapter_config.json', 'tokenizer.json'];

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

/** A run's own config.json is that of its training, so what makes a model is looked for apart. */
const isRun = (folder: string) =>
  existsSync(join(folder, 'run.json')) && !existsSync(join(folder, 'tokenizer.json')) && !hasWeights(folder);

const hasModel = (folder: string) => hasWeights(folder) || modelFiles.some((name) => existsSync(join(folder, name)));

const hasWeights = (folder: string) =>
  existsSync(folder) && readdirSync(folder).some((name) => name.endsWith('.safetensors'));
