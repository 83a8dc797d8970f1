import { expect, it } from 'vitest';
import { ones, type Tensor, tensor } from '../tensor/index.ts';
import { clipGradNorm, gradNorm } from './clipping.ts';

/** A parameter whose gradient is the parameter itself times `scale`. */
function withGradient(i: number, shape: number[]): Tensor {
  const count = shape.reduce((a, b) => a * b, 1);
  const parameter = tensor(
    Array.from({ length: count }, (_, j) => Math.sin(i * 10 + j)),
    { shape },
  ).requiresGrad_();
  parameter.grad = parameter.detach().mul(i + 1);
  return parameter;
}

it('scales as torch.nn.utils.clip_grad_norm_ does (2.13)', () => {
  const parameters = [withGradient(0, [2, 3]), withGradient(1, [4]), withGradient(2, [])];
  expect(clipGradNorm(parameters, 1)).toBeCloseTo(4.194028854, 5);
  const expected = [
    [0, 0.20063542, 0.21680757, 0.033647832, -0.18044758, -0.22864032],
    [-0.25942644, -0.47686368, -0.25587463, 0.20036435],
    [0.653032],
  ];
  for (const [i, parameter] of parameters.entries()) {
    const values = (parameter.grad as Tensor).numbers();
    for (const [j, value] of values.entries()) expect(value).toBeCloseTo(expected[i]?.[j] as number, 6);
  }
  expect(gradNorm(parameters)).toBeCloseTo(1, 5);
});

it('leaves small gradients, no gradients and a limit of 0 alone', () => {
  const parameter = withGradient(0, [2, 3]);
  const before = parameter.grad?.numbers();
  expect(clipGradNorm([parameter], 100)).toBeGreaterThan(1);
  expect(clipGradNorm([parameter], 0)).toBeGreaterThan(1);
  expect(parameter.grad?.numbers()).toEqual(before);
  expect(clipGradNorm([ones([1])], 1)).toBe(0);
  expect(clipGradNorm([], 1)).toBe(0);
});

it('reports a norm that is not finite and does not spread it', () => {
  const [good, bad] = [withGradient(0, [2]), withGradient(1, [1])];
  bad.grad = tensor([Number.NaN]);
  const before = good.grad?.numbers();
  expect(clipGradNorm([good, bad], 0.1)).toBeNaN();
  expect(good.grad?.numbers()).toEqual(before);
});

it('sums bf16 squares in f32, and takes mixed dtypes', () => {
  const many = ones([100_000], { dtype: 'bfloat16' }).requiresGrad_();
  many.grad = ones([100_000], { dtype: 'bfloat16' });
  const double = ones([1], { dtype: 'float64' }).requiresGrad_();
  double.grad = ones([1], { dtype: 'float64' }).mul(Math.sqrt(100_000));
  expect(gradNorm([many])).toBeCloseTo(Math.sqrt(100_000), 3);
  expect(gradNorm([many, double])).toBeCloseTo(Math.sqrt(200_000), 3);
});
