/**
 * A linear layer of a decoder. Its matrix may stack several of the checkpoint's (q, k and v; gate and up), so that one
 * product does the work of two or three. Each part keeps its Hugging Face name for files, gradients and adapters.
 */
import { QuantisedMatrix } from '../../nn/index.ts';
import { aten, type Device, type DType, keep, linear, type Tensor } from '../../tensor/index.ts';

export interface ProjectionPart {
  /** The checkpoint's module name, e.g. `model.layers.0.self_attn.q_proj`. */
  name: string;
  outputs: number;
}

/** A change to a projection's result, such as LoRA's (src/models/lora/projection.ts). */
export interface ProjectionAdapter {
  /** `output` is the projection's own result for `input`. If no gradient is recorded it may be changed in place. */
  apply(input: Tensor, output: Tensor): Tensor;
  /** The changed result and its gradient in one operator, if there is one for it; else null. */
  applyAtOnce(input: Tensor): Tensor | null;
  /** Whether it draws random numbers (dropout is on), so that repeating the forward needs the generator's state. */
  readonly random: boolean;
  isTrained(): boolean;
  /** The whole matrix including the change, in float32; null if the adapter changes more than the matrix. */
  changedWeight(): Tensor | null;
}

export class Projection {
  readonly inputs: number;
  readonly outputs: number;
  readonly parts: readonly (ProjectionPart & { start: number })[];
  /** null if the matrix is quantised. */
  weight: Tensor | null;
  quantised: QuantisedMatrix | null;
  bias: Tensor | null;
  /** The active adapter; set by src/models/lora/adapters.ts. */
  adapter: ProjectionAdapter | null = null;
  /** Whether products may round their input if that is faster; set by `withFastProducts`. */
  fast = false;

  constructor(parts: readonly ProjectionPart[], matrix: Tensor | QuantisedMatrix, bias: Tensor | null) {
    let start = 0;
    this.parts = parts.map((part) => {
      const placed = { ...part, start };
      start += part.outputs;
      return placed;
    });
    this.outputs = start;
    this.quantised = matrix instanceof QuantisedMatrix ? matrix : null;
    this.weight = matrix instanceof QuantisedMatrix ? null : keep(matrix);
    this.inputs = matrix instanceof QuantisedMatrix ? matrix.inputs : matrix.size(1);
    this.bias = bias === null ? null : keep(bias);
  }

  get device(): Device {
    return (this.weight ?? (this.quantised as QuantisedMatrix)).device;
  }

  forward(input: Tensor): Tensor {
    const atOnce = this.adapter?.applyAtOnce(input) ?? null;
    if (atOnce !== null) return atOnce;
    const output = this.product(input, this.bias);
    return this.adapter === null ? output : this.adapter.apply(input, output);
  }

  /** silu(gate)·up of the result, whose first half is the gates (SwiGLU). */
  gated(input: Tensor): Tensor {
    return this.#rounding(input)?.swigluFast(input) ?? aten('attune::swiglu', this.forward(input));
  }

  /** Adds its result to `sum` in place, in one fused product if there is no adapter and no bias. Without gradient. */
  addTo_(sum: Tensor, input: Tensor): Tensor {
    if (this.adapter === null && this.bias === null && this.weight !== null)
      return aten('addmm_', sum, input, this.weight.t());
    return this.#rounding(input)?.addFast_(sum, input) ?? sum.add_(this.forward(input));
  }

  /** The result without the adapter. */
  product(input: Tensor, bias: Tensor | null = null): Tensor {
    if (this.weight !== null) return linear(input, this.weight, bias);
    const matrix = this.quantised as QuantisedMatrix;
    return this.rounds(input.size(0)) ? matrix.multiplyFast(input, bias) : matrix.multiply(input, bias);
  }

  /** Whether the input is rounded when it has this many rows. */
  rounds(rows: number): boolean {
    return this.fast && this.quantised !== null && gainsByRounding(rows, this);
  }

  /** The matrix, if it alone makes the result from rounded input. */
  #rounding(input: Tensor): QuantisedMatrix | null {
    return this.adapter === null && this.bias === null && this.rounds(input.size(0)) ? this.quantised : null;
  }

  /** Replaces the quantised matrix by its dequantised values. */
  dequantise_(dtype: DType): void {
    if (this.quantised === null) return;
    this.weight = keep(this.quantised.dequantise(dtype));
    this.quantised.dispose();
    this.quantised = null;
  }

  /** The rows of one part: a view of the matrix, or a dequantised copy. */
  weightOf(index: number): Tensor {
    return rows(this.weight ?? (this.quantised as QuantisedMatrix).dequantise(), this.#part(index));
  }
  biasOf(index: number): Tensor | null {
    return this.bias === null ? null : rows(this.bias, this.#part(index));
  }
  /** The gradient of one part's weight, or null before backward. */
  gradOf(index: number, which: 'weight' | 'bias'): Tensor | null {
    const gradient = (which === 'weight' ? this.weight : this.bias)?.grad ?? null;
    return gradient === null ? null : rows(gradient, this.#part(index));
  }

  #part(index: number): ProjectionPart & { start: number } {
    return this.parts[index] as ProjectionPart & { start: number };
  }
}

/**
 * Whether rounding this many rows saves time. It saves the cost of plain weights and bf16 products (the first as much
 * as 900 rows). It costs what 800 outputs save, plus some 25 µs. Measured on an H200 (benchmarks/notes/quantised.md).
 */
function gainsByRounding(rows: number, { inputs, outputs }: Projection): boolean {
  return inputs * (outputs * (rows + 900) - 800 * rows) > 1.7e10;
}

function rows(tensor: Tensor, part: { start: number; outputs: number }): Tensor {
  return part.outputs === tensor.size(0) ? tensor : tensor.narrow(0, part.start, part.outputs);
}
