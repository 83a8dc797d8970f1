/** Gradient clipping by the norm of all gradients together (Pascanu et al. 2013). */
import { aten, noGrad, scope, stack, type Tensor } from '../tensor/index.ts';

/** The Euclidean norm of all gradients together. Each tensor is summed in f32, the sum of them in f64. */
export function gradNorm(parameters: Iterable<Tensor>): number {
  return scope(() =>
    noGrad(() => {
      const gradients = gradientsOf(parameters);
      if (gradients.length === 0) return 0;
      // bf16 gradients are squared and summed in f32, f64 ones in f64
      const norms = gradients.map((gradient) => {
        const dtype = gradient.dtype === 'float64' ? 'float64' : 'float32';
        return aten('linalg_vector_norm', gradient, 2, null, false, dtype).to('float64');
      });
      return stack(norms.map((norm) => norm.to(norms[0]?.device ?? 'cpu')))
        .norm()
        .item();
    }),
  );
}

/** Scales all gradients so that their norm is at most `maxNorm` (0 = never), and returns the norm they had. */
export function clipGradNorm(parameters: Iterable<Tensor>, maxNorm: number): number {
  const list = [...parameters];
  const norm = gradNorm(list);
  if (maxNorm > 0 && norm > maxNorm && Number.isFinite(norm)) {
    scope(() => noGrad(() => aten('_foreach_mul_.Scalar', gradientsOf(list), maxNorm / (norm + 1e-6))));
  }
  return norm;
}

function gradientsOf(parameters: Iterable<Tensor>): Tensor[] {
  const out: Tensor[] = [];
  for (const parameter of parameters) {
    const gradient = parameter.grad;
    if (gradient !== null) out.push(gradient);
  }
  return out;
}
