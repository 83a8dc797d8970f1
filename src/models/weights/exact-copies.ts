/**
 * Copies of a model's matrices in fewer bits, with nothing lost, for decoding steps of few rows, which take as long as their weights take to be read. On
 * x86 a weight of a float32 model takes 12 bits where all numbers are bf16 ones, as in most checkpoints, and 28 otherwise (native/cpu/short); elsewhere 16,
 * or there is no copy. A bfloat16 model has them, in 12 bits, on x86 with AVX2 and without instructions for bf16. The step's bits are the same. A matrix that training
 * may change has no copy.
 */
import { aten, freeBytes, keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import { SHARE_OF_COPIES } from './share.ts';

export class ExactCopies {
  readonly #decoder: Decoder;
  /**
   * By matrix: its copy (bfloat16, or words of int32), null where there is none; how often it had been written to then; whether a copy in 28 bits would
   * have been made.
   */
  readonly #copies = new Map<Tensor, { copy: Tensor | null; writes: number; all: boolean }>();

  private constructor(decoder: Decoder) {
    this.#decoder = decoder;
  }

  /** Null on GPUs and for other dtypes. */
  static of(decoder: Decoder): ExactCopies | null {
    const { device, dtype } = decoder;
    return device === 'cpu' && (dtype === 'float32' || dtype === 'bfloat16') ? new ExactCopies(decoder) : null;
  }

  copyOf(matrix: Tensor | null): Tensor | null {
    return (matrix && this.#copies.get(matrix)?.copy) ?? null;
  }

  /** Bytes of all copies. */
  get bytes(): number {
    let bytes = 0;
    for (const { copy } of this.#copies.values()) bytes += bytesOf(copy);
    return bytes;
  }

  /**
   * Makes the copies that are missing, of matrices that were written to, too, as far as there is memory for them. `promised`: bytes that others have
   * asked for and may not have used. `all`: those in 28 bits, too, which take longer to make and gain less.
   */
  refresh(promised: number, all = true): void {
    const matrices = new Set(this.#matrices());
    for (const matrix of this.#copies.keys()) if (!matrices.has(matrix)) this.#forget(matrix);
    let room: number | null = null;
    for (const matrix of matrices) {
      const writes = aten<number>('attune::count_writes', [matrix]);
      const known = this.#copies.get(matrix);
      if (known?.writes === writes && (known.copy !== null || known.all || !all)) continue;
      this.#forget(matrix);
      room ??= (freeBytes('cpu') - promised) * SHARE_OF_COPIES;
      const isFloat = matrix.dtype === 'float32';
      if ((isFloat ? 4 : 3) * matrix.numel > room) continue; // with what lies apart
      const copy = copied('attune::exact_shorts', matrix, all ? 28 : 12);
      const halves = isFloat && copy === null ? copied('attune::exact_halves', matrix) : null;
      this.#copies.set(matrix, { copy: copy ?? halves, writes, all });
      room -= bytesOf(copy ?? halves);
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

const bytesOf = (copy: Tensor | null): number => (copy?.numel ?? 0) * (copy?.dtype === 'bfloat16' ? 2 : 4);

function copied(operator: string, matrix: Tensor, ...rest: number[]): Tensor | null {
  return scope(() => {
    const copy = noGrad(() => aten<Tensor>(operator, matrix, ...rest));
    return copy.numel > 0 ? keep(copy) : null;
  });
}
