/**
 * The norm of gradients, wherever their parts are: the same bits in any order of summation, except for ties in the last
 * bit.
 */
import { noGrad, scope, type Tensor } from '../tensor/index.ts';

/** The sum of squares of all gradients, in f64. */
export function squaresOf(parameters: readonly Tensor[]): number {
  let sum = 0;
  for (const parameter of parameters) {
    const { grad } = parameter;
    if (grad !== null) sum += scope(() => grad.to('float64').square().sum().item());
  }
  return sum;
}

/**
 * Scales gradients to at most `maxNorm`. Returns the norm, rounded to f32 so that the order of the sum has no effect.
 */
export function clipTo(parameters: readonly Tensor[], exactNorm: number, maxNorm: number): number {
  const norm = Math.fround(exactNorm);
  if (maxNorm > 0 && norm > maxNorm && Number.isFinite(norm)) {
    scope(() =>
      noGrad(() => {
        for (const parameter of parameters) parameter.grad?.mul_(maxNorm / (norm + 1e-6));
      }),
    );
  }
  return norm;
}
