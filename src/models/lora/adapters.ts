/**
 * The named adapters of one base model, of which at most one is active. Activating one puts its low-rank changes on the
 * projections and swaps in the tensors that it replaces whole (biases, saved modules, the head). With none active the
 * model has exactly the tensors of its base.
 */
import { UserError } from '../../errors.ts';
import { keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { ScoreHead } from '../decoder/head.ts';
import type { Norm } from '../decoder/norm.ts';
import type { LoraConfig } from './config.ts';
import type { ProjectionLora } from './projection.ts';

/** A tensor of the decoder that an adapter may replace with its own. */
export interface Slot {
  /** The tensor's names in a checkpoint: several for the bias of a fused projection. */
  names: readonly string[];
  get: () => Tensor;
  set: (tensor: Tensor) => void;
}

/** A slot, and the adapter's own tensor for it. */
export interface Replacement {
  slot: Slot;
  own: Tensor;
}

/** One LoRA adapter: its low-rank matrices and the tensors it trains whole. */
export class Adapter {
  readonly name: string;
  readonly config: LoraConfig;
  readonly projections: readonly ProjectionLora[];
  readonly replacements: readonly Replacement[];
  head: ScoreHead | null;

  constructor(
    name: string,
    config: LoraConfig,
    projections: readonly ProjectionLora[],
    replacements: readonly Replacement[],
    head: ScoreHead | null,
  ) {
    this.name = name;
    this.config = config;
    this.projections = projections;
    this.replacements = replacements;
    this.head = head;
  }

  /** Its low-rank matrices, magnitudes and biases, under PEFT's names. */
  *parameters(): Iterable<[string, Tensor]> {
    for (const { parts } of this.projections) {
      for (const { module, a, b, magnitude, bias } of parts) {
        yield [`${module}.lora_A.${this.name}.weight`, a];
        yield [`${module}.lora_B.${this.name}.weight`, b];
        if (magnitude !== null) yield [`${module}.lora_magnitude_vector.${this.name}`, magnitude];
        if (bias !== null) yield [`${module}.base_layer.bias`, bias];
      }
    }
  }

  dispose(): void {
    for (const projection of this.projections) projection.dispose();
    for (const { own } of this.replacements) own.dispose();
    this.head?.dispose();
  }
}

/** The model that adapters change: its decoder's tensors, and its head. */
export interface AdaptedModel {
  readonly decoder: Decoder;
  head: ScoreHead | null;
}

/** A model's named adapters: activates, merges and drops them. */
export class Adapters {
  readonly #model: AdaptedModel;
  readonly #byName = new Map<string, Adapter>();
  readonly #baseTensors = new Map<Slot, Tensor>();
  /** The decoder's arrangement with each adapter, and with none. */
  readonly #arrangements = new Map<Adapter | null, number>();
  #baseHead: ScoreHead | null;
  #active: Adapter | null = null;
  #merged = false;

  constructor(model: AdaptedModel) {
    this.#model = model;
    this.#baseHead = model.head;
  }

  get active(): Adapter | null {
    return this.#active;
  }
  /** Whether the active adapter is merged into the base's weights. */
  get merged(): boolean {
    return this.#merged;
  }
  get names(): string[] {
    return [...this.#byName.keys()];
  }
  get(name: string): Adapter {
    const found = this.#byName.get(name);
    if (found === undefined)
      throw new UserError(`There is no adapter "${name}" on this model. There are: ${this.names.join(', ')}.`);
    return found;
  }

  /**
   * The head of a new adapter: a trainable copy of the base's. The first adapter takes the model's own head, so that
   * code which already holds that head trains it.
   */
  headForNew(): ScoreHead | null {
    const head = this.#baseHead;
    if (head === null) return null;
    const copy = head.copy();
    if (this.#byName.size > 0) return copy.requiresGrad_();
    this.#baseHead = copy;
    return head.requiresGrad_();
  }

  add(adapter: Adapter): void {
    this.checkFree(adapter.name);
    this.#byName.set(adapter.name, adapter);
    this.activate(adapter.name);
  }

  checkFree(name: string): void {
    if (this.#byName.has(name)) throw new UserError(`There is already an adapter "${name}" on this model.`);
    if (!/^[\w-]+$/.test(name))
      throw new UserError(`"${name}" cannot name an adapter: letters, digits, _ and - only, as it is part of names.`);
    this.#checkUnmerged();
  }

  /** Makes the named adapter the active one; null for the bare base. */
  activate(name: string | null): void {
    const next = name === null ? null : this.get(name);
    if (next === this.#active) return;
    this.#checkUnmerged();
    const { decoder } = this.#model;
    this.#arrangements.set(this.#active, decoder.arrangement);
    if (this.#active !== null) this.#putOff(this.#active);
    if (next !== null) this.#putOn(next);
    this.#active = next;
    // The same tensors get their old number again: what was captured with them stays valid.
    decoder.arrangement = this.#arrangements.get(next) ?? decoder.newArrangement();
    this.#model.head = next?.head ?? this.#baseHead;
  }

  #putOn(adapter: Adapter): void {
    for (const lora of adapter.projections) lora.projection.adapter = lora;
    for (const { slot, own } of adapter.replacements) {
      this.#baseTensors.set(slot, slot.get());
      slot.set(own);
    }
  }

  #putOff(adapter: Adapter): void {
    for (const lora of adapter.projections) lora.projection.adapter = null;
    for (const { slot } of adapter.replacements) slot.set(this.#baseTensors.get(slot) as Tensor);
    this.#baseTensors.clear();
  }

  /** Gives the active adapter a head that was just added to the model. */
  adoptHead(head: ScoreHead): void {
    if (this.#active !== null) this.#active.head = head;
    else this.#baseHead = head;
  }

  merge(): void {
    if (this.#active === null) throw new UserError('There is no active adapter to merge.');
    if (this.#merged) return;
    const { decoder } = this.#model;
    // A quantised base is dequantised first: the adapter's change is smaller than the steps between 4-bit levels.
    for (const projection of decoder.projections()) projection.dequantise_(decoder.dtype);
    for (const lora of this.#active.projections) {
      lora.merge();
      lora.projection.adapter = null;
    }
    this.#arrangements.clear();
    decoder.arrangement = decoder.newArrangement();
    this.#merged = true;
  }

  unmerge(): void {
    if (!this.#merged) return;
    for (const lora of this.#active?.projections ?? []) {
      lora.unmerge();
      lora.projection.adapter = lora;
    }
    const { decoder } = this.#model;
    decoder.arrangement = decoder.newArrangement();
    this.#merged = false;
  }

  /** Drops all adapters. A merged one stays in the weights, with the tensors it replaced; otherwise the bare base is left. */
  unload(): void {
    const active = this.#active;
    if (active !== null && this.#merged) {
      for (const tensor of this.#baseTensors.values()) tensor.dispose();
      if (active.head !== null) this.#baseHead?.dispose();
      this.#byName.delete(active.name);
      for (const lora of active.projections) lora.dispose();
    } else {
      this.activate(null);
    }
    for (const adapter of this.#byName.values()) adapter.dispose();
    this.#byName.clear();
    this.#arrangements.clear();
    this.#active = null;
    this.#merged = false;
  }

  *parameters(): Iterable<[string, Tensor]> {
    if (this.#active !== null && !this.#merged) yield* this.#active.parameters();
  }

  #checkUnmerged(): void {
    if (this.#merged)
      throw new UserError(
        `The adapter "${this.#active?.name}" is merged into the base: take it out first with unmergeAdapters().`,
      );
  }
}

/** Every tensor of a decoder that an adapter can replace: all but the projections' matrices. */
export function* slotsOf(decoder: Decoder): Iterable<Slot> {
  const { embedding, positions, embeddingNorm, finalNorm, head } = decoder.weights;
  for (const table of [embedding, positions]) if (table !== null) yield slot([table.name], table, 'weight');
  if (embeddingNorm !== null) yield* normSlots(embeddingNorm);
  for (const layer of decoder.layers) {
    for (const norm of layer.norms) yield* normSlots(norm);
    for (const projection of layer.projections) {
      if (projection.bias === null) continue;
      const names = projection.parts.map((part) => `${part.name}.bias`);
      yield slot(names, projection, 'bias');
    }
  }
  yield* normSlots(finalNorm);
  if (head !== null && head.weight !== null) yield slot([`${head.name}.weight`], head, 'weight');
  if (head !== null && head.bias !== null) yield slot([`${head.name}.bias`], head, 'bias');
}

function* normSlots(norm: Norm): Iterable<Slot> {
  yield slot([`${norm.name}.weight`], norm, 'weight');
  if (norm.bias !== null) yield slot([`${norm.name}.bias`], norm, 'bias');
}

function slot<Field extends 'weight' | 'bias'>(
  names: string[],
  holder: { [key in Field]: Tensor | null },
  field: Field,
): Slot {
  return {
    names,
    get: () => holder[field] as Tensor,
    set: (tensor) => {
      holder[field] = tensor;
    },
  };
}

/** A trainable copy of the slot's tensor, to be swapped in for it. */
export function replacement(place: Slot): Replacement {
  return { slot: place, own: keep(scope(() => noGrad(() => place.get().detach().clone()))).requiresGrad_() };
}
