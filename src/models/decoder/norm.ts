/** A layer norm or RMS norm of a decoder, with its weights named as in the checkpoint. */
import { layerNorm, rmsNorm, type Tensor } from '../../tensor/index.ts';

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

export function* normParameters(norm: Norm): Iterable<[string, Tensor]> {
  yield [`${norm.name}.weight`, norm.weight];
  if (norm.bias !== null) yield [`${norm.name}.bias`, norm.bias];
}
