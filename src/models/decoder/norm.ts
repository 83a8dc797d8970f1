/** A layer norm or RMS norm of a decoder, with its weights named as in the checkpoint. */
import { addRmsNorm, layerNorm, rmsNorm, type Tensor } from '../../tensor/index.ts';

export interface Norm {
  name: string;
  kind: 'rms' | 'layer';
  weight: Tensor;
  bias: Tensor | null;
  eps: number;
}

export function applyNorm(norm: Norm, x: Tensor): Tensor {
  return norm.kind === 'rms' ? rmsNorm(x, norm.weight, norm.eps) : layerNorm(x, norm.weight, norm.bias, norm.eps);
}

/**
 * x + added (or x if `added` is null) and its norm: a block continues with both the residual and its norm. Later uses
 * of x must use the returned sum, so that backward adds both gradients in one pass.
 */
export function addNorm(norm: Norm | null, x: Tensor, added: Tensor | null): [sum: Tensor, normed: Tensor] {
  if (norm?.kind === 'rms' && norm.weight.dtype === x.dtype && x.dtype !== 'float64')
    return addRmsNorm(x, added, norm.weight, norm.eps);
  const sum = added === null ? x : x.add(added);
  return [sum, norm === null ? sum : applyNorm(norm, sum)];
}

export function* normParameters(norm: Norm): Iterable<[string, Tensor]> {
  yield [`${norm.name}.weight`, norm.weight];
  if (norm.bias !== null) yield [`${norm.name}.bias`, norm.bias];
}
