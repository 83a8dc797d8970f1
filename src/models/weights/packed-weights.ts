/**
 * Copies in 12 bits a weight, with nothing lost, of matrices that decoding on CUDA reads in steps of few rows: such a step takes as long as reading its
 * weights takes, and three quarters of the bytes give the same bits (native/cuda/packed/cells.cuh). The vocabulary's matrix and wide gates have kernels for
 * them. Steps of more rows, prompts and training read the matrices themselves. A matrix that training changes has no copy: its gradients and moments
 * need the memory.
 */
import { aten, empty, keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { MergedWeights } from './merged-weights.ts';
import { isPlain } from './plain.ts';
import { SHARE_OF_COPIES } from './share.ts';

export class PackedWeights {
  readonly #copies = new Map<Tensor, { copy: Tensor; gates: boolean; writes: number }>();
  #writes = 0;

  private constructor() {}

  /** Those that steps of so many rows would read; null where that is none, or where there is no room for them. */
  static of(decoder: Decoder, merged: MergedWeights | null, rows: number, freeBytes: number): PackedWeights | null {
    if (!decoder.device.startsWith('cuda') || decoder.dtype !== 'bfloat16' || decoder.residence !== null) return null;
    if (!isPlain(decoder, merged)) return null; // nothing would read them
    const wanted = [...matricesOf(decoder, merged)].flatMap(({ matrix, gates }) => {
      const bytes = aten<number>('attune::packed_bytes', matrix, gates, rows);
      return bytes > 0 ? [{ matrix, gates, bytes }] : [];
    });
    const bytes = wanted.reduce((sum, each) => sum + each.bytes, 0);
    if (bytes === 0 || bytes > freeBytes * SHARE_OF_COPIES) return null;
    const packed = new PackedWeights();
    try {
      for (const each of wanted) packed.#add(each);
      packed.#writes = writesOf(packed.#copies.keys());
    } catch (error) {
      packed.dispose();
      throw error;
    }
    return packed;
  }

  copyOf(matrix: Tensor | null): Tensor | null {
    return (matrix && this.#copies.get(matrix)?.copy) ?? null;
  }

  /** Bytes of all copies. */
  get bytes(): number {
    return this.#copies.values().reduce((sum, { copy }) => sum + copy.numel, 0);
  }

  /**
   * Packs the matrices again that were written to. False where one can no longer be packed: recorded steps that read its copy hold its memory, and
   * are no longer valid. After an error no copy is.
   */
  refresh(): boolean {
    const writes = writesOf(this.#copies.keys());
    if (writes === this.#writes) return true;
    const before = this.#copies.size;
    for (const [matrix, held] of [...this.#copies]) {
      const now = writesOf([matrix]);
      if (now === held.writes) continue;
      held.writes = now;
      if (pack(matrix, held.gates, held.copy)) continue;
      this.#copies.delete(matrix);
      held.copy.dispose();
    }
    this.#writes = writesOf(this.#copies.keys());
    return this.#copies.size === before;
  }

  #add({ matrix, gates, bytes }: { matrix: Tensor; gates: boolean; bytes: number }): void {
    const copy = keep(empty([bytes], { dtype: 'uint8', device: matrix.device }));
    let isPacked = false;
    try {
      isPacked = pack(matrix, gates, copy);
    } finally {
      if (isPacked) this.#copies.set(matrix, { copy, gates, writes: writesOf([matrix]) });
      else copy.dispose();
    }
  }

  dispose(): void {
    for (const { copy } of this.#copies.values()) copy.dispose();
    this.#copies.clear();
  }
}

/** The matrices that have kernels for packed weights, where their shape fits, and are not trained: as decoding reads them. */
function* matricesOf(decoder: Decoder, merged: MergedWeights | null): Generator<{ matrix: Tensor; gates: boolean }> {
  const { weights, layers, headWeight } = decoder;
  if (!weights.head?.bias && !headWeight.requiresGrad) yield { matrix: headWeight, gates: false };
  for (const { weights: own } of layers) {
    const matrix = merged?.weightOf(own.up) ?? own.up.weight;
    if (matrix !== null && !matrix.requiresGrad) yield { matrix, gates: true };
  }
}

const pack = (matrix: Tensor, gates: boolean, copy: Tensor): boolean =>
  scope(() => noGrad(() => aten<boolean>('attune::pack', matrix, gates, copy)));

const writesOf = (matrices: Iterable<Tensor>): number => aten<number>('attune::count_writes', [...matrices]);
