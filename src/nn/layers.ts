/** The layers that decoders and heads are made of. */
import {
  type Device,
  type DType,
  embedding,
  empty,
  layerNorm,
  linear,
  ones,
  rmsNorm,
  type Tensor,
  zeros,
} from '../tensor/index.ts';
import { kaiming, normal } from './initialisers.ts';
import { Module, parameter } from './module.ts';

/** The dtype and device of a layer's parameters; float32 on the CPU by default. */
export interface LayerOptions {
  dtype?: DType;
  device?: Device;
}

/** x·weightᵀ + bias, with weight [outputs, inputs]. */
export class Linear extends Module {
  weight: Tensor;
  bias: Tensor | null;
  constructor(inputs: number, outputs: number, options: LayerOptions & { bias?: boolean } = {}) {
    super();
    this.weight = parameter(kaiming(empty([outputs, inputs], options), inputs));
    this.bias = options.bias === false ? null : parameter(kaiming(empty([outputs], options), inputs));
  }
  forward(x: Tensor): Tensor {
    return linear(x, this.weight, this.bias);
  }
}

/** A table of vectors, one per id. */
export class Embedding extends Module {
  weight: Tensor;
  constructor(count: number, size: number, options: LayerOptions = {}) {
    super();
    this.weight = parameter(normal(empty([count, size], options), 1));
  }
  forward(ids: Tensor): Tensor {
    return embedding(this.weight, ids);
  }
}

/** Layer normalisation with a learned weight and bias (Ba et al. 2016). */
export class LayerNorm extends Module {
  weight: Tensor;
  bias: Tensor | null;
  readonly eps: number;
  constructor(size: number, options: LayerOptions & { eps?: number; bias?: boolean } = {}) {
    super();
    this.weight = parameter(ones([size], options));
    this.bias = options.bias === false ? null : parameter(zeros([size], options));
    this.eps = options.eps ?? 1e-5;
  }
  forward(x: Tensor): Tensor {
    return layerNorm(x, this.weight, this.bias, this.eps);
  }
}

/** Root-mean-square normalisation with a learned weight (Zhang & Sennrich 2019). */
export class RMSNorm extends Module {
  weight: Tensor;
  readonly eps: number;
  constructor(size: number, options: LayerOptions & { eps?: number } = {}) {
    super();
    this.weight = parameter(ones([size], options));
    this.eps = options.eps ?? 1e-6;
  }
  forward(x: Tensor): Tensor {
    return rmsNorm(x, this.weight, this.eps);
  }
}
