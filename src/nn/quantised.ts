/**
 * A frozen matrix in 8 or 4 bits. What it is multiplied with keeps its dtype and its gradient; the matrix itself has none.
 *
 *     using matrix = QuantisedMatrix.of(weight, 'int4');
 *     matrix.multiply(x);                                   // x·Ŵᵀ
 *
 * `int8`: max|w| of each row is 127, the rest is rounded to the nearest. `int4`: NF4 with double quantisation (Dettmers et al.
 * 2023, QLoRA), 4.127 bits a weight. The format and its arithmetic are in native/cpu/quantised_rows.h.
 */
import { aten, type Device, type DType, dtypeBytes, keep, noGrad, scope, type Tensor } from '../tensor/index.ts';

export const quantTypes = ['int8', 'int4'] as const;
export type QuantType = (typeof quantTypes)[number];

/** Weights that share a maximum, and maxima that share one. */
const BLOCK = 64;
const RUN = 256;

interface Quantised {
  /** int8 [outputs, inputs]; uint8 [outputs, ⌈inputs / 2⌉] of 4 bits. */
  codes: Tensor;
  /** float32 [outputs]; uint8 [outputs, blocks] of 4 bits. */
  scales: Tensor;
  nested: Tensor | null;
  offset: number;
}

export class QuantisedMatrix {
  readonly type: QuantType;
  readonly outputs: number;
  readonly inputs: number;
  readonly #held: Quantised;

  private constructor(type: QuantType, inputs: number, held: Quantised) {
    this.type = type;
    this.inputs = inputs;
    this.outputs = held.codes.size(0);
    this.#held = held;
  }

  /**
   * Of a plain [outputs, inputs] on the CPU, or of several below one another. They are read a few rows at a time, so that
   * they may lie in a file; the codes are then put on `device`, which never holds more than these.
   */
  static of(weight: Tensor | readonly Tensor[], type: QuantType, device: Device = 'cpu'): QuantisedMatrix {
    const parts = Array.isArray(weight) ? weight : [weight];
    return scope(() =>
      noGrad(() => {
        const { codes, scales, nested, offset } = quantise(parts, type);
        const there = (tensor: Tensor) => keep(tensor.to({ device }));
        const held = { codes: there(codes), scales: there(scales), nested: nested && there(nested), offset };
        return new QuantisedMatrix(type, parts[0].size(1), held);
      }),
    );
  }

  get device(): Device {
    return this.#held.codes.device;
  }
  get bytes(): number {
    let sum = 0;
    for (const [, tensor] of this.tensors()) sum += tensor.numel * dtypeBytes[tensor.dtype];
    return sum;
  }

  /** x·Ŵᵀ + bias, with gradients for `x` and `bias`. */
  multiply(x: Tensor, bias: Tensor | null = null): Tensor {
    const { codes, scales, nested, offset } = this.#held;
    return aten('attune::quantised_linear', x, codes, scales, nested, offset, bias);
  }

  /** Ŵ, [outputs, inputs]. */
  dequantise(dtype: DType = 'float32'): Tensor {
    const { codes, scales, nested, offset } = this.#held;
    return aten('attune::dequantise', codes, scales, nested, offset, this.inputs, dtype);
  }

  /** What it is made of, for whoever writes, counts or compares it; the offset goes with `nested`. */
  *tensors(): Iterable<[string, Tensor]> {
    const { codes, scales, nested } = this.#held;
    yield ['codes', codes];
    yield ['scales', scales];
    if (nested !== null) yield ['nested', nested];
  }
  /** The mean of the blocks' maxima; 0 of 8 bits. */
  get offset(): number {
    return this.#held.offset;
  }

  dispose(): void {
    for (const [, tensor] of this.tensors()) tensor.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

function quantise(parts: readonly Tensor[], type: QuantType): Quantised {
  if (type === 'int8') {
    const [codes, scales] = aten<[Tensor, Tensor]>('attune::quantise_int8', parts);
    return { codes, scales, nested: null, offset: 0 };
  }
  const [codes, scales, nested, offset] = aten<[Tensor, Tensor, Tensor, number]>('attune::quantise_nf4', parts);
  return { codes, scales, nested, offset };
}

/** What a matrix of this size takes. */
export function quantisedBytes(outputs: number, inputs: number, type: QuantType): number {
  if (type === 'int8') return outputs * (inputs + 4);
  const blocks = outputs * Math.ceil(inputs / BLOCK);
  return outputs * Math.ceil(inputs / 2) + blocks + 4 * Math.ceil(blocks / RUN);
}
