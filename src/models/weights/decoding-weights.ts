/**
 * The weights that a sampler decodes with: those of a request's adapter, how often they were written to, the copies in which
 * adapters are merged, those in fewer bits on a CPU, and those in 12 bits on a GPU.
 */
import { aten, freeBytes, type Tensor } from '../../tensor/index.ts';
import type { Model } from '../model.ts';
import { ExactCopies } from './exact-copies.ts';
import { MergedWeights } from './merged-weights.ts';
import { PackedWeights } from './packed-weights.ts';

export class DecodingWeights {
  readonly #model: Model;
  #gathered: { arrangement: number; weights: readonly Tensor[] } | null = null;
  #merged: { copies: MergedWeights | null; arrangement: number } | null = null;
  #exact: ExactCopies | null = null;
  #packed: { copies: PackedWeights | null; arrangement: number; rows: number } | null = null;
  #changes = 0;

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
      this.#dropMerged();
      this.#merged = {
        copies: MergedWeights.of(decoder, () => this.#writes(), freeBytes(decoder.device)),
        arrangement: decoder.arrangement,
      };
    }
    const { copies } = this.#merged;
    copies?.refresh();
    return copies;
  }

  /** The copies in fewer bits on a CPU, for the weights as they are now; `promised`: of memory, `all`: those in 28 bits, too (ExactCopies). */
  exact(promised: number, all: boolean): ExactCopies | null {
    this.#exact ??= ExactCopies.of(this.#model.decoder);
    this.#exact?.refresh(promised, all);
    return this.#exact;
  }

  /**
   * The copies in 12 bits for steps of so many rows, for the weights as they are now. They stay where later steps have more rows; where there
   * are none, it is tried again for fewer rows.
   */
  packed(rows: number): PackedWeights | null {
    const { decoder } = this.#model;
    if (this.#packed !== null && this.#packed.arrangement !== decoder.arrangement) this.#dropPacked();
    if (this.#packed !== null && (this.#packed.copies !== null || rows >= this.#packed.rows)) {
      this.#refreshPacked(this.#packed.copies);
      return this.#packed.copies;
    }
    const copies = PackedWeights.of(decoder, this.merged(), rows, freeBytes(decoder.device));
    if (copies !== null) this.#changes++;
    this.#packed = { copies, arrangement: decoder.arrangement, rows };
    return copies;
  }

  /** Changes where a merged copy or one in 12 bits is another one than before, or gone: a plan that was made with it is no longer valid. */
  get changes(): number {
    return this.#changes;
  }

  /** Bytes of all copies. */
  get copyBytes(): number {
    const copies = [this.#merged?.copies, this.#exact, this.#packed?.copies];
    return copies.reduce((sum, each) => sum + (each?.bytes ?? 0), 0);
  }

  #refreshPacked(copies: PackedWeights | null): void {
    try {
      if (copies?.refresh() === false) this.#changes++;
    } catch (error) {
      this.#dropPacked();
      throw error;
    }
  }

  #dropPacked(): void {
    if (this.#packed?.copies) this.#changes++;
    this.#packed?.copies?.dispose();
    this.#packed = null;
  }

  #dropMerged(): void {
    if (this.#merged?.copies) {
      this.#changes++;
      this.#dropPacked(); // copies of these copies
      this.#merged.copies.dispose();
    }
    this.#merged = null;
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
    this.#dropMerged();
    this.#dropPacked();
    this.#exact?.dispose();
    this.#exact = null;
  }
}
