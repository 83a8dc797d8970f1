/**
 * A model as the rest of the product holds it: a decoder, perhaps a head of another kind, and the config it came with.
 *
 *     const model = await loadModel('Qwen/Qwen3-0.6B', { dtype: 'bfloat16' });
 *     model.save('./out');                                  // transformers loads it
 */
import { existsSync } from 'node:fs';
import { UserError } from '../errors.ts';
import { Checkpoint, type Device, scope, seed, type Tensor } from '../tensor/index.ts';
import { loadAdapter, readAdapterConfig, saveAdapters } from './adapter-files.ts';
import type { Adapters } from './adapters.ts';
import type { Decoder } from './decoder.ts';
import { familyOf } from './families/index.ts';
import { type HeadKind, ScoreHead } from './head.ts';
import { type ResolveOptions, resolveModel } from './hub.ts';
import { initDecoder, type LoadOptions, readConfig, readDecoder, scoreWeightName, storedHead } from './load.ts';
import { saveModel } from './save.ts';
import type { Family, WeightNames } from './spec.ts';

/** What attune itself keeps in a config.json, under `attune`; other programs ignore it. */
export interface ModelNotes {
  head?: HeadKind;
  [note: string]: unknown;
}

export class Model {
  readonly decoder: Decoder;
  readonly config: Record<string, unknown>;
  readonly family: Family;
  readonly names: WeightNames;
  head: ScoreHead | null;
  readonly notes: ModelNotes;
  /** Where it was loaded from; undefined for fresh weights. */
  readonly folder: string | undefined;
  /** The name it was asked for by (`org/name[@revision]`), where that is not the folder. */
  readonly hubName: string | undefined;
  /** The adapters that lie on it (lora.ts); null: it is a plain model. */
  adapters: Adapters | null = null;

  constructor(
    decoder: Decoder,
    config: Record<string, unknown>,
    head: ScoreHead | null,
    folder?: string,
    hubName?: string,
  ) {
    const { family, names } = familyOf(config, folder ?? 'config');
    this.decoder = decoder;
    this.config = config;
    this.family = family;
    this.names = names;
    this.head = head;
    this.notes = { ...(config.attune as ModelNotes | undefined) };
    this.folder = folder;
    this.hubName = hubName;
  }

  get device(): Device {
    return this.decoder.device;
  }

  /** Gives the model a fresh head; the one before is dropped. */
  addHead(kind: HeadKind, outputs: number): ScoreHead {
    this.head?.dispose();
    this.head = ScoreHead.init(kind, outputs, this.decoder.spec.hiddenSize, this.device);
    this.notes.head = kind;
    this.adapters?.adoptHead(this.head);
    return this.head;
  }

  /** What an optimiser trains: parameters that require a gradient, under stable names. */
  *trainable(): Iterable<[string, Tensor]> {
    for (const [name, parameter] of this.parameters()) if (parameter.requiresGrad) yield [name, parameter];
  }

  *parameters(): Iterable<[string, Tensor]> {
    yield* this.decoder.parameters();
    if (this.adapters !== null) yield* this.adapters.parameters();
    if (this.head !== null) yield [scoreWeightName, this.head.weight];
    if (this.head !== null && this.head.bias !== null) yield ['score.bias', this.head.bias];
  }

  /** Writes config.json and safetensors as Hugging Face does; of a model with adapters only these, as PEFT does. */
  save(folder: string): void {
    if (this.adapters === null || this.adapters.active === null || this.adapters.merged) saveModel(this, folder);
    else saveAdapters(this, folder);
  }

  train(value = true): this {
    this.decoder.train(value);
    return this;
  }

  dispose(): void {
    this.adapters?.unload();
    this.decoder.dispose();
    this.head?.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** From a folder or the hub (`org/name[@revision]`). The folder of an adapter gives its base with the adapter on it. */
export async function loadModel(name: string, options: LoadOptions & ResolveOptions = {}): Promise<Model> {
  const folder = await resolveModel(name, options);
  const adapter = readAdapterConfig(folder);
  if (adapter === null)
    return loadPlainModel(folder, options, /^[./~]/.test(name) || existsSync(name) ? undefined : name);
  const { base } = adapter;
  return withAdapter(await loadModel(base.folder ?? base.name, options), folder);
}

/** The same without the hub: what it needs must lie on this disk. */
export function loadModelFolder(folder: string, options: LoadOptions = {}): Model {
  const adapter = readAdapterConfig(folder);
  if (adapter === null) return loadPlainModel(folder, options);
  const { base } = adapter;
  if (base.folder === undefined)
    throw new UserError(
      `${folder}: its base model "${base.name}" is not a folder here. Load the adapter by loadModel().`,
    );
  return withAdapter(loadModelFolder(base.folder, options), folder);
}

function loadPlainModel(folder: string, options: LoadOptions, hubName?: string): Model {
  const config = readConfig(folder);
  using checkpoint = new Checkpoint(folder);
  const decoder = readDecoder(checkpoint, config, folder, options);
  const notes = config.attune as ModelNotes | undefined;
  const head = readHead(checkpoint, notes, decoder.device);
  return new Model(decoder, config, head, folder, hubName);
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

function readHead(checkpoint: Checkpoint, notes: ModelNotes | undefined, device: Device): ScoreHead | null {
  const module = storedHead(checkpoint);
  if (module === undefined) return null;
  const read = (name: string) => scope(() => checkpoint.tensor(name).to({ dtype: 'float32', device, copy: true }));
  const weight = read(`${module}.weight`);
  const bias = checkpoint.has(`${module}.bias`) ? read(`${module}.bias`) : null;
  return new ScoreHead(notes?.head ?? (weight.size(0) === 1 ? 'reward' : 'classes'), weight, bias);
}

/** Fresh random weights from a config, under a seed. */
export function initModel(
  config: Record<string, unknown>,
  options: LoadOptions & { seed?: number; source?: string } = {},
): Model {
  if (options.seed !== undefined) seed(options.seed);
  return new Model(initDecoder(config, options.source ?? 'config', options), config, null);
}
