/**
 * A model as the rest of the product holds it: a decoder, perhaps a head of another kind, and the config it came with.
 *
 *     const model = await loadModel('Qwen/Qwen3-0.6B', { dtype: 'bfloat16' });
 *     model.save('./out');                                  // transformers loads it
 */
import { Checkpoint, type Device, seed, type Tensor } from '../tensor/index.ts';
import type { Decoder } from './decoder.ts';
import { familyOf } from './families/index.ts';
import { type HeadKind, ScoreHead } from './head.ts';
import { type ResolveOptions, resolveModel } from './hub.ts';
import { initDecoder, type LoadOptions, readConfig, readDecoder, scoreWeightName } from './load.ts';
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

  constructor(decoder: Decoder, config: Record<string, unknown>, head: ScoreHead | null, folder?: string) {
    const { family, names } = familyOf(config, folder ?? 'config');
    this.decoder = decoder;
    this.config = config;
    this.family = family;
    this.names = names;
    this.head = head;
    this.notes = { ...(config.attune as ModelNotes | undefined) };
    this.folder = folder;
  }

  get device(): Device {
    return this.decoder.device;
  }

  /** Gives the model a fresh head; the one before is dropped. */
  addHead(kind: HeadKind, outputs: number): ScoreHead {
    this.head?.dispose();
    this.head = ScoreHead.init(kind, outputs, this.decoder.spec.hiddenSize, this.device);
    this.notes.head = kind;
    return this.head;
  }

  /** What an optimiser trains: parameters that require a gradient, under stable names. */
  *trainable(): Iterable<[string, Tensor]> {
    for (const [name, parameter] of this.parameters()) if (parameter.requiresGrad) yield [name, parameter];
  }

  *parameters(): Iterable<[string, Tensor]> {
    yield* this.decoder.parameters();
    if (this.head !== null) yield [scoreWeightName, this.head.weight];
  }

  /** Writes config.json and safetensors as Hugging Face does. */
  save(folder: string): void {
    saveModel(this, folder);
  }

  train(value = true): this {
    this.decoder.train(value);
    return this;
  }

  dispose(): void {
    this.decoder.dispose();
    this.head?.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** From a folder or the hub (`org/name[@revision]`). */
export async function loadModel(name: string, options: LoadOptions & ResolveOptions = {}): Promise<Model> {
  return loadModelFolder(await resolveModel(name, options), options);
}

export function loadModelFolder(folder: string, options: LoadOptions = {}): Model {
  const config = readConfig(folder);
  using checkpoint = new Checkpoint(folder);
  const decoder = readDecoder(checkpoint, config, folder, options);
  const notes = config.attune as ModelNotes | undefined;
  const head = checkpoint.has(scoreWeightName) ? readHead(checkpoint, notes, decoder.device) : null;
  return new Model(decoder, config, head, folder);
}

function readHead(checkpoint: Checkpoint, notes: ModelNotes | undefined, device: Device): ScoreHead {
  const stored = checkpoint.tensor(scoreWeightName).to({ dtype: 'float32', device, copy: true });
  return new ScoreHead(notes?.head ?? (stored.size(0) === 1 ? 'reward' : 'classes'), stored);
}

/** Fresh random weights from a config, under a seed. */
export function initModel(
  config: Record<string, unknown>,
  options: LoadOptions & { seed?: number; source?: string } = {},
): Model {
  if (options.seed !== undefined) seed(options.seed);
  return new Model(initDecoder(config, options.source ?? 'config', options), config, null);
}
