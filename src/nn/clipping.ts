/** Gradient clipping by the norm of all gradients together (Pascanu et al. 2013). */
import { aten, hasCudaKernels, noGrad, scope, stack, type Tensor } from '../tensor/index.ts';

/** The Euclidean norm of all gradients together. Each tensor is summed in f32, the sums are added in f64. */
export function gradNorm(parameters: Iterable<Tensor>): number {
  return scope(() =>
    noGrad(() => {
      const gradients = gradientsOf(parameters);
      if (gradients.length === 0) return 0;
      if (hasCudaKernels() && gradients.every(({ device, dtype }) => device.startsWith('cuda') && dtype !== 'float64'))
        return Math.sqrt(squaresByKind(gradients).reduce((sum, each) => sum + each.item(), 0));
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

/**
 * Σ g² of all gradients, f64, on their common CUDA device; null if our kernels do not take them. Does not wait for the
 * device.
 */
export function gradSquares(parameters: Iterable<Tensor>): Tensor | null {
  return scope(() =>
    noGrad(() => {
      const gradients = gradientsOf(parameters);
      const device = gradients[0]?.device;
      if (device === undefined || gradients.some((gradient) => gradient.device !== device)) return null;
      if (gradients.some(({ dtype }) => dtype === 'float64') || (device.startsWith('cuda') && !hasCudaKernels()))
        return null;
      const sums = squaresByKind(gradients);
      return sums.slice(1).reduce((sum, each) => sum.add(each), sums[0] as Tensor);
    }),
  );
}

/** One launch for all gradients of a dtype and device. */
function squaresByKind(gradients: readonly Tensor[]): Tensor[] {
  const groups = new Map<string, Tensor[]>();
  for (const gradient of gradients) {
    const key = `${gradient.dtype} ${gradient.device}`;
    const group = groups.get(key) ?? [];
    group.push(gradient);
    groups.set(key, group);
  }
  return [...groups.values()].map((group) => aten<Tensor>('attune::sum_of_squares', group));
}

/** The factor that brings a gradient of this norm to at most `maxNorm` (0 = never). */
export function clipFactor(norm: number, maxNorm: number): number {
  return maxNorm > 0 && norm > maxNorm && Number.isFinite(norm) ? maxNorm / (norm + 1e-6) : 1;
}

/** Scales all gradients so that their norm is at most `maxNorm` (0 = never), and returns the norm they had. */
export function clipGradNorm(parameters: Iterable<Tensor>, maxNorm: number): number {
  const list = [...parameters];
  const norm = gradNorm(list);
  const factor = clipFactor(norm, maxNorm);
  if (factor !== 1) scope(() => noGrad(() => aten('_foreach_mul_.Scalar', gradientsOf(list), factor)));
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
