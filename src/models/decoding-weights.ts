/**
 * The weights that a sampler decodes with: those of a request's adapter, how often they were written to, the copies in which
 * adapters are merged, those in bf16, and those in 12 bits.
 */
import { aten, freeBytes, type Tensor } from '../tensor/index.ts';
import { MergedWeights } from './decoder/merged.ts';
import { HalfWeights } from './half-weights.ts';
import type { Model } from './model.ts';
import { PackedWeights } from './packed-weights.ts';

export class DecodingWeights {
  readonly #model: Model;
  #gathered: { arrangement: number; weights: readonly Tensor[] } | null = null;
  #merged: { copies: MergedWeights | null; arrangement: number } | null = null;
  #halves: HalfWeights | null = null;
  #packed: { copies: PackedWeights | null; arrangement: number; rows: number } | null = null;
  #packings = 0;

  constructor(model: Model) {
    this.#model = model;
  }

  /** Runs `body` with an adapter active (null: the bare base), then activates the previous one again. */
  withAdapter<T>(name: string | null, body: () => T): T {
    const { adapters } = this.#model;
    const before = adapters?.active?.name ?? null;
    if (adapters === null || name === before) return body();
    adapters.activate(name);
    try {
      return body();
    } finally {
      adapters.activate(before);
    }
  }

  /**
   * The state of the weights that keys and values are computed with: the adapter, and how often the weights were written to.
   * libtorch counts every in-place write, so trainers need not report theirs.
   */
  now(adapter: string | null): string {
    return this.withAdapter(adapter, () => `${adapter ?? ''}:${this.#writes()}`);
  }

  /** The copies of adapted matrices that decoding uses; null where there are no adapters, or none that can be merged. */
  merged(): MergedWeights | null {
    const { decoder } = this.#model;
    if (this.#merged?.arrangement !== decoder.arrangement) {
      this.#merged?.copies?.dispose();
      this.#merged = {
        copies: MergedWeights.of(decoder, () => this.#writes(), freeBytes(decoder.device)),
        arrangement: decoder.arrangement,
      };
    }
    const { copies } = this.#merged;
    copies?.refresh();
    return copies;
  }

  /** The copies in bf16 of matrices that have no other numbers, for the weights as they are now; `promised`: of memory (HalfWeights). */
  halves(promised: number): HalfWeights | null {
    this.#halves ??= HalfWeights.of(this.#model.decoder);
    this.#halves?.refresh(promised);
    return this.#halves;
  }

  /**
   * The copies in 12 bits for steps of so many rows, for the weights as they are now. They stay where later steps have more rows; where there
   * are none, it is tried again for fewer rows.
   */
  packed(rows: number): PackedWeights | null {
    const { decoder } = this.#model;
    if (this.#packed !== null && this.#packed.arrangement !== decoder.arrangement) this.#dropPacked();
    if (this.#packed !== null && (this.#packed.copies !== null || rows >= this.#packed.rows)) {
      if (this.#packed.copies?.refresh() === false) this.#packings++;
      return this.#packed.copies;
    }
    const copies = PackedWeights.of(decoder, this.merged(), rows, freeBytes(decoder.device));
    if (copies !== null) this.#packings++;
    this.#packed = { copies, arrangement: decoder.arrangement, rows };
    return copies;
  }

  /** Changes where other matrices than before have copies in 12 bits: a plan that was made before is no longer valid. */
  get packings(): number {
    return this.#packings;
  }

  /** Bytes of the copies in bf16 and in 12 bits. */
  get copyBytes(): number {
    return (this.#halves?.bytes ?? 0) + (this.#packed?.copies?.bytes ?? 0);
  }

  #dropPacked(): void {
    if (this.#packed?.copies) this.#packings++;
    this.#packed?.copies?.dispose();
    this.#packed = null;
  }

  #writes(): number {
    return aten<number>('attune::count_writes', this.#all());
  }

  /** Gathered again only where the model was put together anew: this is asked between all bursts of tokens. */
  #all(): readonly Tensor[] {
    const { arrangement } = this.#model.decoder;
    if (this.#gathered?.arrangement !== arrangement) {
      const named = [...this.#model.decoder.tensors(), ...(this.#model.adapters?.parameters() ?? [])];
      this.#gathered = { arrangement, weights: named.map(([, weight]) => weight) };
    }
    return this.#gathered.weights;
  }

  /** Frees the copies; they are made again when they are needed. */
  dispose(): void {
    this.#merged?.copies?.dispose();
    this.#merged = null;
    this.#halves?.dispose();
    this.#halves = null;
    this.#dropPacked();
  }
}
