/**
 * Models from folders and from the hub, and with fresh weights from a config.
 *
 *     const model = await loadModel('Qwen/Qwen3-0.6B', { dtype: 'bfloat16' });
 */
import { existsSync } from 'node:fs';
import { checkNames, UserError } from '../../errors.ts';
import { type ResolveOptions, resolveModel, resolveOptionNames } from '../../hub/hub.ts';
import type { QuantType } from '../../nn/index.ts';
import { Checkpoint, seed } from '../../tensor/index.ts';
import { Model, type ModelNotes } from '../model.ts';
import { loadAdapter, openBase, readAdapterConfig } from './adapter.ts';
import { initDecoder, type LoadOptions, readConfig, readDecoder } from './decoder.ts';
import { checkDevice } from './device.ts';
import { readHead } from './head.ts';

const ownOptions: Record<keyof LoadOptions, true> = { dtype: true, device: true, quantType: true };
export const loadOptionNames: readonly string[] = [...Object.keys(ownOptions), ...resolveOptionNames];

/** Those of a caller's options that concern loading. */
export function loadOptionsOf(options: LoadOptions & ResolveOptions): LoadOptions & ResolveOptions {
  return Object.fromEntries(Object.entries(options).filter(([name]) => loadOptionNames.includes(name)));
}

/** Loads a model from a folder or the hub (`org/name[@revision]`). An adapter's folder gives its base with the adapter on it. */
export async function loadModel(name: string, options: LoadOptions & ResolveOptions = {}): Promise<Model> {
  checkNames('loadModel', options, loadOptionNames);
  // Before a download that would be in vain.
  if (options.device !== undefined) checkDevice(options.device);
  const folder = await resolveModel(name, options);
  const adapter = readAdapterConfig(folder);
  if (adapter === null)
    return loadPlainModel(folder, options, /^[./~]/.test(name) || existsSync(name) ? undefined : name);
  const base = await openBase(folder, adapter, (model) => loadModel(model, asTrained(adapter.base, options)));
  return withAdapter(base, folder);
}

/** Loads a model from a folder, without the hub: an adapter's base must be on this disk too. */
export function loadModelFolder(folder: string, options: LoadOptions = {}): Model {
  const adapter = readAdapterConfig(folder);
  if (adapter === null) return loadPlainModel(folder, options);
  const { base } = adapter;
  if (base.folder === undefined)
    throw new UserError(
      `${folder}: its base model "${base.name}" is not a folder here. Load the adapter by loadModel().`,
    );
  return withAdapter(loadModelFolder(base.folder, asTrained(base, options)), folder);
}

function loadPlainModel(folder: string, options: LoadOptions, hubName?: string): Model {
  const config = readConfig(folder);
  using checkpoint = new Checkpoint(folder);
  const decoder = readDecoder(checkpoint, config, folder, options);
  const { quantType, dtype, device } = decoder;
  if (quantType !== null && dtype === 'float16' && device === 'cpu') {
    decoder.dispose();
    throw new UserError(
      `${folder}: a model in ${quantType} has no products in float16 on a CPU. Take float32, which is the fastest there, or bfloat16.`,
    );
  }
  const notes = config.attune as ModelNotes | undefined;
  const head = readHead(checkpoint, notes, decoder.device);
  return new Model(decoder, config, head, folder, hubName);
}

/** An adapter that was trained on a quantised base gets that base again, unless another is requested. */
function asTrained<O extends LoadOptions>({ quantType }: { quantType?: QuantType }, options: O): O {
  return { ...options, quantType: options.quantType ?? quantType };
}

function withAdapter(base: Model, folder: string): Model {
  try {
    loadAdapter(base, folder);
  } catch (error) {
    base.dispose();
    throw error;
  }
  return base;
}

/** Makes a model with random weights from a config and a seed. */
export function initModel(
  config: Record<string, unknown>,
  options: LoadOptions & { seed?: number; source?: string } = {},
): Model {
  if (options.seed !== undefined) seed(options.seed);
  return new Model(initDecoder(config, options.source ?? 'config', options), config, null);
}
