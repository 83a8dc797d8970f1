/** Initial weights, drawn from the seeded generator. */
import { noGrad, type Tensor } from '../tensor/index.ts';

/** Fills a tensor with numbers from N(mean, std²), in place. */
export function normal(tensor: Tensor, std: number, mean = 0): Tensor {
  return noGrad(() => tensor.normal_(mean, std));
}

/** Fills a tensor with numbers from [−bound, bound), in place. */
export function uniform(tensor: Tensor, bound: number): Tensor {
  return noGrad(() => tensor.uniform_(-bound, bound));
}

/** Fills a tensor uniformly with variance 1/(3·fan-in), as PyTorch's Linear does (He et al. 2015 with a = √5). */
export function kaiming(tensor: Tensor, fanIn: number): Tensor {
  return uniform(tensor, 1 / Math.sqrt(fanIn));
}
