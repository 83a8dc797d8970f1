/**
 * What fast decoding (`precision: 'fast'`) holds of a quantised model beside its weights: the vocabulary's matrix in 8 bits, and the maxima
 * of blocks of 4 bits as float32, half a bit a weight more. Its steps are limited by the instructions that each weight takes.
 */
import { QuantisedMatrix } from '../../nn/index.ts';
import { quantisedBytes } from '../../nn/quantised.ts';
import { aten, keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';

export class FastWeights {
  readonly #decoder: Decoder;
  readonly #maxima = new Map<QuantisedMatrix, Tensor>();
  #head: { matrix: QuantisedMatrix; of: Tensor; writes: number } | null = null;

  private constructor(decoder: Decoder) {
    this.#decoder = decoder;
  }

  /** Null where nothing would be faster: plain weights, GPUs, half precision, and CPUs that do not multiply digits of 8 bits. */
  static of(decoder: Decoder): FastWeights | null {
    const { device, dtype, quantType } = decoder;
    if (quantType === null || device !== 'cpu' || dtype !== 'float32') return null;
    return aten<boolean>('attune::can_round') ? new FastWeights(decoder) : null;
  }

  /** The head in 8 bits, made again where the plain one has changed. */
  head(): QuantisedMatrix {
    const { headWeight } = this.#decoder;
    const writes = aten<number>('attune::count_writes', [headWeight]);
    if (this.#head?.of !== headWeight || this.#head.writes !== writes) {
      this.#head?.matrix.dispose();
      this.#head = { matrix: QuantisedMatrix.of(headWeight, 'int8'), of: headWeight, writes };
    }
    return this.#head.matrix;
  }

  /** A block matrix's tensors by name, its maxima without their own quantisation. */
  tensorsOf(matrix: QuantisedMatrix): [string, Tensor][] {
    const tensors = [...matrix.tensors()];
    if (matrix.type === 'int8') return tensors;
    let maxima = this.#maxima.get(matrix);
    if (maxima === undefined) {
      maxima = scope(() => noGrad(() => keep(aten<Tensor>('attune::block_maxima', ...matrix.arguments()))));
      this.#maxima.set(matrix, maxima);
    }
    const kept = tensors.filter(([name]) => name === 'codes' || name === 'levels');
    return [...kept, ['scales', maxima]];
  }

  /** Bytes that it holds beside the model's weights once a plan is made of it. */
  get bytes(): number {
    const { headWeight } = this.#decoder;
    let maxima = 0;
    for (const { quantised } of this.#decoder.projections())
      if (quantised?.type === 'int4') maxima += new Map(quantised.tensors()).get('scales')?.numel ?? 0;
    return quantisedBytes([headWeight.size(0)], headWeight.size(1), 'int8') + 4 * maxima;
  }

  dispose(): void {
    this.#head?.matrix.dispose();
    this.#head = null;
    for (const maxima of this.#maxima.values()) maxima.dispose();
    this.#maxima.clear();
  }
}
