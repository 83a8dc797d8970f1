/**
 * Copies in bf16 of a float32 model's matrices, of those that have no other numbers: most checkpoints are bf16, and loaded as float32 half of each
 * weight's bits are zeros. A decoding step of few rows on a CPU takes as long as its weights take to be read, and the copies give it the same
 * bits from half the bytes (native/cpu/skinny). A matrix that training may change has none.
 */
import { aten, freeBytes, keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import { SHARE_OF_COPIES } from './share.ts';

export class HalfWeights {
  readonly #decoder: Decoder;
  /** By matrix: its copy, or null where it has other numbers, and how often it had been written to then. */
  readonly #copies = new Map<Tensor, { copy: Tensor | null; writes: number }>();

  private constructor(decoder: Decoder) {
    this.#decoder = decoder;
  }

  /** Null where nothing would be faster: GPUs and other dtypes. */
  static of(decoder: Decoder): HalfWeights | null {
    return decoder.device === 'cpu' && decoder.dtype === 'float32' ? new HalfWeights(decoder) : null;
  }

  copyOf(matrix: Tensor | null): Tensor | null {
    return (matrix && this.#copies.get(matrix)?.copy) ?? null;
  }

  /** Bytes of all copies. */
  get bytes(): number {
    let bytes = 0;
    for (const { copy } of this.#copies.values()) bytes += 2 * (copy?.numel ?? 0);
    return bytes;
  }

  /**
   * Makes the copies that are missing, of matrices that were written to, too, as far as there is memory for them. `promised`: bytes that others have
   * asked for and may not have used.
   */
  refresh(promised: number): void {
    const matrices = new Set(this.#matrices());
    for (const matrix of this.#copies.keys()) if (!matrices.has(matrix)) this.#forget(matrix);
    let room: number | null = null;
    for (const matrix of matrices) {
      const writes = aten<number>('attune::count_writes', [matrix]);
      if (this.#copies.get(matrix)?.writes === writes) continue;
      this.#forget(matrix);
      room ??= (freeBytes('cpu') - promised) * SHARE_OF_COPIES;
      const bytes = 2 * matrix.numel;
      if (bytes > room) continue;
      const copy = scope(() => {
        const halves = noGrad(() => aten<Tensor>('attune::exact_halves', matrix));
        return halves.numel > 0 ? keep(halves) : null;
      });
      this.#copies.set(matrix, { copy, writes });
      if (copy !== null) room -= bytes;
    }
  }

  /** The matrices of products that are not trained and lie where they are. */
  *#matrices(): Generator<Tensor> {
    const { residence, weights, headWeight } = this.#decoder;
    if (residence !== null) return;
    const all = [...this.#decoder.projections()].map(({ weight }) => weight);
    if (weights.lm) all.push(headWeight);
    for (const matrix of all) if (matrix !== null && !matrix.requiresGrad) yield matrix;
  }

  #forget(matrix: Tensor): void {
    this.#copies.get(matrix)?.copy?.dispose();
    this.#copies.delete(matrix);
  }

  dispose(): void {
    for (const matrix of [...this.#copies.keys()]) this.#forget(matrix);
  }
}
