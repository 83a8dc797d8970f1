/** Initial weights, drawn from the seeded generator. */
import { noGrad, type Tensor } from '../tensor/index.ts';

export function normal(tensor: Tensor, std: number, mean = 0): Tensor {
  return noGrad(() => tensor.normal_(mean, std));
}

export function uniform(tensor: Tensor, bound: number): Tensor {
  return noGrad(() => tensor.uniform_(-bound, bound));
}

/** Uniform with variance 1/(3·fan-in): what PyTorch's Linear starts from (He et al. 2015 with a = √5). */
export function kaiming(tensor: Tensor, fanIn: number): Tensor {
  return uniform(tensor, 1 / Math.sqrt(fanIn));
}
