/**
 * A linear layer as decoders use it: one matrix that may hold several of the checkpoint's (q, k and v; gate and up), so that
 * one product does the work of two or three. Each part keeps its Hugging Face name for files, gradients and adapters.
 */
import { aten, keep, linear, type Tensor } from '../tensor/index.ts';

export interface ProjectionPart {
  /** The checkpoint's module name, e.g. `model.layers.0.self_attn.q_proj`. */
  name: string;
  outputs: number;
}

/** What an adapter adds to one part's output (src/models/lora.ts). */
export interface PartAdapter {
  /** The change to `output`, the part's own result for `input`; null adds nothing. */
  delta(input: Tensor, output: Tensor, weight: Tensor, bias: Tensor | null): Tensor | null;
}

export class Projection {
  readonly inputs: number;
  readonly outputs: number;
  readonly parts: readonly (ProjectionPart & { start: number })[];
  weight: Tensor;
  bias: Tensor | null;
  /** By part index; set by src/models/lora.ts. */
  readonly adapters: (PartAdapter | undefined)[] = [];
  /** Replaces the product where the matrix is not a plain tensor (quantised weights). */
  multiply: ((input: Tensor) => Tensor) | undefined;

  constructor(parts: readonly ProjectionPart[], weight: Tensor, bias: Tensor | null) {
    let start = 0;
    this.parts = parts.map((part) => {
      const placed = { ...part, start };
      start += part.outputs;
      return placed;
    });
    this.outputs = start;
    this.inputs = weight.size(1);
    this.weight = keep(weight);
    this.bias = bias === null ? null : keep(bias);
  }

  forward(input: Tensor): Tensor {
    const output = this.multiply === undefined ? linear(input, this.weight, this.bias) : this.multiply(input);
    return this.adapters.length === 0 ? output : this.#adapted(input, output);
  }

  #adapted(input: Tensor, output: Tensor): Tensor {
    let result = output;
    this.parts.forEach((part, i) => {
      const adapter = this.adapters[i];
      if (adapter === undefined) return;
      const whole = part.outputs === this.outputs;
      const own = whole ? output : output.narrow(1, part.start, part.outputs);
      const delta = adapter.delta(input, own, this.weightOf(i), this.biasOf(i));
      if (delta === null) return;
      result = whole ? result.add(delta) : addColumns(result, delta, part.start, this.outputs);
    });
    return result;
  }

  /** The rows of one part: a view. */
  weightOf(index: number): Tensor {
    return rows(this.weight, this.#part(index));
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

function rows(tensor: Tensor, part: { start: number; outputs: number }): Tensor {
  return part.outputs === tensor.size(0) ? tensor : tensor.narrow(0, part.start, part.outputs);
}

/** `result` with `delta` added to some of its columns, as a tensor of its own (autograd forbids doing it in place on a view). */
function addColumns(result: Tensor, delta: Tensor, start: number, width: number): Tensor {
  return result.add(aten('constant_pad_nd', delta, [start, width - start - delta.size(1)], 0));
}
