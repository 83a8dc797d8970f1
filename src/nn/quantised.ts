/**
 * A frozen matrix in 8 or 4 bits. Products keep the dtype of their input and pass gradients to it; the matrix itself
 * gets none.
 *
 *     using matrix = QuantisedMatrix.of(weight, 'int4');
 *     matrix.multiply(x);                                   // x·Ŵᵀ
 *
 * `int8`: each row is scaled so that max|w| is 127, and rounded (Dettmers et al. 2022, LLM.int8). `int4`: NF4 with
 * double quantisation (Dettmers et al. 2023, QLoRA), 4.127 bits per weight. native/cpu/quantised/rows.h describes
 * bitsandbytes' format.
 */
import {
  aten,
  cat,
  type Device,
  type DType,
  dtypeBytes,
  keep,
  noGrad,
  scope,
  type Tensor,
  tensor,
} from '../tensor/index.ts';

/** The names of the quantised formats. */
export const quantTypes = ['int8', 'int4'] as const;
/** How a frozen matrix is held: in 8 or in 4 bits. */
export type QuantType = (typeof quantTypes)[number];

/** NF4: the number of weights that share a maximum, in matrices from `QuantisedMatrix.of`. */
export const QUANT_BLOCK = 64;
/** Double quantisation: the number of block maxima that share a maximum of their own. */
export const QUANT_RUN = 256;

/** One matrix in 8 or 4 bits, as it is stored in a file. */
export interface QuantisedPart {
  outputs: number;
  inputs: number;
  /** 8 bits: int8 [outputs, inputs]. 4 bits: uint8 [⌈outputs·inputs / 2⌉]. */
  codes: Tensor;
  /** 8 bits: max|w| of each row, float32 [outputs]. 4 bits: max|w| of each block, uint8 with `nested`, else float32. */
  scales: Tensor;
  /**
   * Double quantisation: the largest of each run of 256 block maxima, and the mean of all maxima, which was subtracted
   * first.
   */
  nested: { largest: Tensor; offset: number } | null;
  /** 4 bits: the values of the 16 codes, float32. */
  levels: Tensor | null;
  /** 4 bits: the number of weights that share a maximum. */
  block: number;
}

/** The tensors of all parts, joined, in the order of the arguments in native/ops/quantised.cc. */
interface Held {
  codes: Tensor;
  scales: Tensor;
  nested: Tensor | null;
  offsets: Tensor | null;
  levels: Tensor | null;
}

/** A frozen matrix in 8 or 4 bits; products with it pass gradients to their input. */
export class QuantisedMatrix {
  readonly type: QuantType;
  /** The rows of each part. Parts are quantised separately and multiplied as one matrix. */
  readonly parts: readonly number[];
  readonly outputs: number;
  readonly inputs: number;
  readonly block: number;
  readonly #held: Held;

  private constructor(held: Held, parts: readonly number[], inputs: number, block: number) {
    this.type = held.levels === null ? 'int8' : 'int4';
    this.parts = parts;
    this.outputs = parts.reduce((sum, rows) => sum + rows, 0);
    this.inputs = inputs;
    this.block = block;
    this.#held = held;
  }

  /**
   * Quantises a matrix [outputs, inputs] on the CPU, or several stacked by rows. They are read a few rows at a time, so
   * they may be mapped from a file. Only the result is copied to `device`.
   */
  static of(weight: Tensor | readonly Tensor[], type: QuantType, device: Device = 'cpu'): QuantisedMatrix {
    const parts: readonly Tensor[] = Array.isArray(weight) ? weight : [weight];
    return scope(() =>
      noGrad(() => {
        const [codes, scales, nested = null, offsets = null, levels = null] = aten<Tensor[]>(
          type === 'int8' ? 'attune::quantise_int8' : 'attune::quantise_nf4',
          parts,
        ) as [Tensor, Tensor, ...Tensor[]];
        const rows = parts.map((part) => part.size(0));
        const held = placed({ codes, scales, nested, offsets, levels }, device);
        return new QuantisedMatrix(held, rows, (parts[0] as Tensor).size(1), QUANT_BLOCK);
      }),
    );
  }

  /** Stacks matrices that are already quantised by rows; they must be of the same kind (`sameKind`). */
  static join(parts: readonly QuantisedPart[], device: Device = 'cpu'): QuantisedMatrix {
    const [first] = parts as [QuantisedPart, ...QuantisedPart[]];
    return scope(() => {
      const joined = (pick: (part: QuantisedPart) => Tensor) => cat(parts.map(pick));
      const held = {
        codes: first.levels === null ? joined((part) => part.codes) : joined((part) => part.codes.reshape(-1)),
        scales: joined((part) => part.scales.reshape(-1)),
        nested: first.nested && joined((part) => (part.nested as Nested).largest.reshape(-1)),
        offsets: first.nested && tensor(Float32Array.from(parts, (part) => (part.nested as Nested).offset)),
        levels: first.levels?.clone() ?? null,
      };
      const rows = parts.map((part) => part.outputs);
      return new QuantisedMatrix(placed(held, device), rows, first.inputs, first.block);
    });
  }

  get device(): Device {
    return this.#held.codes.device;
  }
  get bytes(): number {
    let sum = 0;
    for (const [, part] of this.tensors()) sum += part.numel * dtypeBytes[part.dtype];
    return sum;
  }

  /** x·Ŵᵀ + bias, with gradients for `x` and `bias`. */
  multiply(x: Tensor, bias: Tensor | null = null): Tensor {
    return aten('attune::quantised_linear', ...this.arguments(), x, bias);
  }

  /**
   * `multiply` without gradients. For an 8-bit matrix, a GPU may round many rows of x to 8 bits; everywhere else the
   * result is the same.
   */
  multiplyFast(x: Tensor, bias: Tensor | null = null): Tensor {
    return aten('attune::quantised_linear_fast', ...this.arguments(), x, bias);
  }

  /** Adds `multiplyFast`'s result to `sum` in place. */
  addFast_(sum: Tensor, x: Tensor): Tensor {
    return aten('attune::quantised_add_fast_', sum, ...this.arguments(), x);
  }

  /**
   * silu(first half)·second half of `multiplyFast`'s result; if a GPU rounds x, the product's own kernel computes it.
   */
  swigluFast(x: Tensor): Tensor {
    return aten('attune::quantised_swiglu_fast', ...this.arguments(), x);
  }

  /** Ŵ, [outputs, inputs]. */
  dequantise(dtype: DType = 'float32'): Tensor {
    return aten('attune::dequantise', ...this.arguments(), dtype);
  }

  /** The matrix as arguments of the operators in native/ops/quantised.cc. */
  arguments(): unknown[] {
    const { codes, scales, nested, offsets, levels } = this.#held;
    return [codes, scales, nested, offsets, levels, this.parts, this.inputs, this.block];
  }

  /** One of the matrices that it was made of, as views of its tensors. */
  part(index: number): QuantisedPart {
    const { codes, scales, nested, offsets, levels } = this.#held;
    const { inputs, block } = this;
    const outputs = this.parts[index] as number;
    const before = this.parts.slice(0, index);
    const start = (size: (rows: number) => number) => before.reduce((sum, rows) => sum + size(rows), 0);
    const cut = (whole: Tensor, size: (rows: number) => number) => whole.narrow(0, start(size), size(outputs));
    if (levels === null) {
      const rows = (count: number) => count;
      return { outputs, inputs, block, codes: cut(codes, rows), scales: cut(scales, rows), nested: null, levels };
    }
    const bytes = (rows: number) => Math.ceil((rows * inputs) / 2);
    const blocks = (rows: number) => Math.ceil((rows * inputs) / block);
    const runs = (rows: number) => Math.ceil(blocks(rows) / QUANT_RUN);
    const offset = offsets === null ? 0 : (offsets.numbers()[index] as number);
    return {
      outputs,
      inputs,
      block,
      levels,
      codes: cut(codes, bytes),
      scales: cut(scales, blocks),
      nested: nested === null ? null : { largest: cut(nested, runs), offset },
    };
  }

  /** Its tensors by name, to count or compare them. */
  *tensors(): Iterable<[string, Tensor]> {
    for (const [name, part] of Object.entries(this.#held) as [string, Tensor | null][])
      if (part !== null) yield [name, part];
  }

  dispose(): void {
    for (const [, part] of this.tensors()) part.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

type Nested = NonNullable<QuantisedPart['nested']>;

function placed(held: Held, device: Device): Held {
  const there = (part: Tensor | null) => part && keep(part.to({ device }));
  const { codes, scales, nested, offsets, levels } = held;
  return {
    codes: there(codes) as Tensor,
    scales: there(scales) as Tensor,
    nested: there(nested),
    offsets: there(offsets),
    levels: there(levels),
  };
}

/** Whether quantised matrices can be joined: same inputs, block size, levels and double quantisation. */
export function sameKind(parts: readonly QuantisedPart[]): boolean {
  const kind = ({ inputs, block, levels, nested }: QuantisedPart) =>
    [inputs, block, nested !== null, ...(levels?.numbers() ?? [])].join();
  return new Set(parts.map(kind)).size === 1;
}

/** Bytes of a quantised matrix whose parts have these numbers of rows. */
export function quantisedBytes(parts: readonly number[], inputs: number, type: QuantType): number {
  const sum = (size: (rows: number) => number) => parts.reduce((total, rows) => total + size(rows), 0);
  if (type === 'int8') return sum((rows) => rows * (inputs + 4));
  const blocks = (rows: number) => Math.ceil((rows * inputs) / QUANT_BLOCK);
  const held = sum((rows) => Math.ceil((rows * inputs) / 2) + blocks(rows) + 4 * Math.ceil(blocks(rows) / QUANT_RUN));
  return held + 4 * parts.length + 4 * 16; // the offsets and the levels
}
