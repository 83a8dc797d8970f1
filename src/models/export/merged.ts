/**
 * Merges a model's adapters into its weights and writes a plain model folder in Hugging Face's format, with the tokenizer.
 *
 *     await exportMerged({ model: 'Qwen/Qwen3-0.6B', adapter: './checkpoints/dpo/run/final', out: './merged' });
 */

import { cpSync, existsSync, readdirSync, renameSync, rmdirSync, rmSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { checkArguments, text } from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import { makeFolder } from '../../folder.ts';
import { resolveModel } from '../../hub/hub.ts';
import type { Progress } from '../../progress.ts';
import type { DType } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { loadAdapter, readAdapterConfig } from '../files/adapter.ts';
import { loadModel } from '../files/load.ts';
import { saveModel } from '../files/save.ts';
import { mergeAdapters, unloadAdapters } from '../lora/lora.ts';
import type { Model } from '../model.ts';

export interface MergeSource {
  /** A folder or a name on the hub; an adapter's folder gives its base with the adapter. */
  model: string;
  /** The folder of an adapter to put on the model. */
  adapter?: string;
  /** The dtype of the weights; by default as they are stored. */
  dtype?: DType;
}

export interface MergedModel extends Disposable {
  model: Model;
  /** The folder with its tokenizer; null if none of the folders has one. */
  tokenizerFolder: string | null;
  /** All folders that were read; the export must not overwrite them. */
  inputs: string[];
}

/** Loads a model, dequantises it if it is quantised, and merges its adapters. */
export async function openMerged(source: MergeSource, progress?: Progress): Promise<MergedModel> {
  const folder = await resolveModel(source.model, { progress });
  const model = await loadModel(source.model, { progress, dtype: source.dtype });
  try {
    for (const projection of model.decoder.projections()) projection.dequantise_(model.decoder.dtype);
    if (model.adapters !== null) fold(model);
    const inputs = [folder, model.folder as string];
    if (source.adapter !== undefined) {
      const adapter = await resolveModel(source.adapter, { progress });
      if (readAdapterConfig(adapter) === null)
        throw new UserError(
          `--adapter ${source.adapter}: there is no adapter_config.json; this is not an adapter's folder.`,
        );
      loadAdapter(model, adapter);
      fold(model);
      inputs.unshift(adapter);
    }
    const tokenizerFolder = inputs.find((place) => existsSync(join(place, 'tokenizer.json'))) ?? null;
    return { model, tokenizerFolder, inputs, [Symbol.dispose]: () => model.dispose() };
  } catch (error) {
    model.dispose();
    throw error;
  }
}

function fold(model: Model): void {
  mergeAdapters(model);
  unloadAdapters(model);
}

/** Which model and adapter to merge, and where to write the result. */
export interface MergedOptions extends MergeSource {
  /** A folder that does not exist yet, or is empty. */
  out: string;
}

/** Writes a model with its adapters merged as a plain model folder with its tokenizer. */
export async function exportMerged(
  options: MergedOptions,
  { progress }: { progress?: Progress } = {},
): Promise<{
  folder: string;
  dtype: DType;
  tokenizer: boolean;
}> {
  checkArguments('exportMerged', options, { model: text, adapter: text, out: text }, ['model', 'out']);
  checkNames('exportMerged', options, ['model', 'adapter', 'dtype', 'out']);
  const folder = resolve(options.out);
  if (existsSync(folder) && readdirSync(folder).length > 0)
    throw new UserError(`--out ${options.out} exists and is not empty; give a new folder.`);
  using merged = await openMerged(options, progress);
  const { model, tokenizerFolder, inputs } = merged;
  const bar = progress?.start('writing');
  const beside = join(dirname(folder), `.${basename(folder)}.${process.pid}.tmp`);
  makeFolder(beside);
  try {
    saveModel(model, beside);
    if (tokenizerFolder !== null) await (await Tokenizer.load(tokenizerFolder)).save(beside);
    const generation = inputs.map((place) => join(place, 'generation_config.json')).find(existsSync);
    if (generation !== undefined) cpSync(generation, join(beside, 'generation_config.json'));
    if (existsSync(folder)) rmdirSync(folder);
    renameSync(beside, folder);
  } catch (error) {
    rmSync(beside, { recursive: true, force: true });
    throw error;
  }
  bar?.done();
  return { folder, dtype: model.decoder.dtype, tokenizer: tokenizerFolder !== null };
}
