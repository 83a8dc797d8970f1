/**
 * A model: a decoder, its config, and optionally a score head and adapters.
 *
 *     const model = await loadModel('Qwen/Qwen3-0.6B', { dtype: 'bfloat16' });
 *     saveModel(model, './out');                            // transformers loads it
 */
import type { Device, Tensor } from '../tensor/index.ts';
import type { Decoder } from './decoder/decoder.ts';
import { type HeadKind, ScoreHead, scoreWeightName } from './decoder/head.ts';
import { familyOf } from './families/index.ts';
import type { Family, WeightNames } from './families/spec.ts';
import type { Adapters } from './lora/adapters.ts';

/** What the library keeps in a model's config.json under the key `attune`; other programs ignore it. */
export interface ModelNotes {
  head?: HeadKind;
  [note: string]: unknown;
}

/** A loaded model: its decoder, config, score head and adapters. Dispose it to free its weights. */
export class Model {
  readonly decoder: Decoder;
  readonly config: Record<string, unknown>;
  readonly family: Family;
  readonly names: WeightNames;
  head: ScoreHead | null;
  readonly notes: ModelNotes;
  /** The folder it was loaded from; undefined for fresh weights. */
  readonly folder: string | undefined;
  /** Its name on the hub (`org/name[@revision]`), if it came from there. */
  readonly hubName: string | undefined;
  /** Its LoRA adapters (lora/lora.ts); null for a plain model. */
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

  /** Gives the model a new head with random weights, instead of the old one. */
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
