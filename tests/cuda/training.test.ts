/** The operators of a training step on the device against the CPU: norms, heads, SwiGLU, log-probs, AdamW; also odd sizes. */
import { describe, expect, it } from 'vitest';
import { AdamW, clipGradNorm, gradNorm, gradSquares } from '../../src/nn/index.ts';
import {
  addRmsNorm,
  aten,
  type DType,
  linearLogprob,
  noGrad,
  ones,
  randint,
  randn,
  scope,
  seed,
  type Tensor,
  tensor,
} from '../../src/tensor/index.ts';
import { device, gap, gapOfFunction, hasCuda, precisions } from './device.ts';

// The CPU's own f16 arithmetic is not complete in libtorch 1.13.
const all: readonly [DType, number][] = hasCuda ? [...precisions, ['float16', 6e-3]] : precisions;

describe.each(all)(`training on ${device} in %s`, (dtype, bound) => {
  const holds = (inputs: Tensor[], fn: (...inputs: Tensor[]) => Tensor) =>
    expect(gapOfFunction(inputs, fn, dtype)).toBeLessThanOrEqual(bound);

  it.each([
    [70, 1024],
    [3, 2560],
    [1, 8192],
    [600, 128],
    [33, 96],
    [5, 1001],
    [9, 7],
  ])('add_rms_norm of %i rows of %i', (rows, size) =>
    scope(() => {
      seed(1);
      const [x, added, weight] = [randn([rows, size]), randn([rows, size]), randn([size])] as const;
      // both results are used, so that backward adds both ways
      holds([x, added, weight], (...given) => {
        const [sum, normed] = addRmsNorm(given[0] as Tensor, given[1] as Tensor, given[2] as Tensor, 1e-6);
        return sum.add(normed);
      });
      holds([x, weight], (...given) => {
        const [sum, normed] = addRmsNorm(given[0] as Tensor, null, given[1] as Tensor, 1e-6);
        return sum.mul(0.5).add(normed);
      });
      holds([x, weight], (...given) => addRmsNorm(given[0] as Tensor, null, given[1] as Tensor, 1e-6)[1]);
    }),
  );

  it.each([
    { size: 128, heads: 16, groups: 8, rows: 300 },
    { size: 64, heads: 3, groups: 1, rows: 41 },
    { size: 80, heads: 4, groups: 4, rows: 7 },
    { size: 96, heads: 6, groups: 2, rows: 7 },
    { size: 256, heads: 2, groups: 1, rows: 9 },
    { size: 12, heads: 2, groups: 1, rows: 9 },
  ])('split_heads: $heads and $groups heads of $size', ({ size, heads, groups, rows }) =>
    scope(() => {
      seed(2);
      const angles = randn([rows, size / 2]);
      const inputs = [randn([rows, (heads + 2 * groups) * size]), randn([size]), randn([size])];
      const joined = (parts: Tensor[]) => aten<Tensor>('cat', parts, 1);
      const split = (qkv: Tensor, q: Tensor | null, k: Tensor | null, turned: boolean) => {
        const [cos, sin] = turned ? [angles.cos().to(qkv.device), angles.sin().to(qkv.device)] : [null, null];
        return joined(aten('attune::split_heads', qkv, heads, groups, q, k, 1e-6, cos, sin, false));
      };
      holds(inputs, (qkv, q, k) => split(qkv as Tensor, q as Tensor, k as Tensor, true));
      holds(inputs, (qkv, q, k) => split(qkv as Tensor, q as Tensor, k as Tensor, false));
      holds(inputs.slice(0, 1), (qkv) => split(qkv as Tensor, null, null, true));
    }),
  );

  it.each([
    [40, 3072],
    [3, 24],
    [5, 77],
  ])('swiglu of %i rows of %i', (rows, size) =>
    scope(() => {
      seed(3);
      holds([randn([rows, 2 * size])], (x) => aten('attune::swiglu', x));
    }),
  );

  it.each([500, 501, 20_000].flatMap((words) => [true, false].map((keep) => ({ words, keep }))))(
    'linear_logprob over $words words, logits kept for backward: $keep',
    ({ words, keep }) =>
      scope(() => {
        seed(4);
        const targets = randint(0, words, [33]);
        for (const part of ['logp', 'entropy'] as const)
          holds([randn([33, 64]).mul(0.3), randn([words, 64])], (hidden, weight) => {
            const options = { temperature: 0.7, chunk: 8, keep };
            return linearLogprob(hidden as Tensor, weight as Tensor, targets.to((hidden as Tensor).device), options)[
              part
            ];
          });
      }),
  );

  it('lora_linear: a product with changes to some of its outputs', () =>
    scope(() => {
      seed(9);
      const inputs = [randn([40, 64]), randn([96, 64]), randn([96]), ...[4, 8].map((r) => randn([r, 64]))];
      inputs.push(randn([32, 4]), randn([48, 8]));
      const scales = [2, 0.3];
      const starts = [0, 48];
      const atOnce = ([x, weight, bias, a0, a1, b0, b1]: Tensor[]) =>
        aten<Tensor>('attune::lora_linear', x, weight, bias, [a0, b0, a1, b1], scales, starts);
      const composed = ([x, weight, bias, a0, a1, b0, b1]: Tensor[]) => {
        const change = (a: Tensor, b: Tensor, i: number) =>
          aten<Tensor>('constant_pad_nd', b.matmul(a).mul(scales[i] as number), [
            0,
            0,
            starts[i] as number,
            96 - (starts[i] as number) - b.size(0),
          ]);
        const changed = (weight as Tensor)
          .add(change(a0 as Tensor, b0 as Tensor, 0))
          .add(change(a1 as Tensor, b1 as Tensor, 1));
        return (x as Tensor).matmul(changed.t()).add(bias as Tensor);
      };
      // on the CPU the product of the changed weight, on the device the operator
      holds(inputs, (...given) => (given[0]?.dtype === dtype && given[0].device === device ? atOnce : composed)(given));
      expect(gapOfFunction(inputs, (...given) => atOnce(given), dtype)).toBeLessThanOrEqual(bound);
      expect(gap(atOnce(inputs), composed(inputs))).toBeLessThanOrEqual(1e-5);
    }));

  it('AdamW: many tensors of odd sizes, updates as on the CPU', () =>
    scope(() => {
      seed(5);
      const shapes = [[1], [3], [64], [1000, 7], [33, 129], [4096], [4097], [70_001], ...Array(90).fill([17])];
      const starts = shapes.map((shape) => randn(shape));
      const gradients = [0, 1, 2].map(() => shapes.map((shape) => randn(shape).mul(0.01)));
      const trained = (place: string, type: DType) => {
        const parameters = starts.map((start) => start.to({ device: place, dtype: type, copy: true }));
        using optimizer = new AdamW(
          parameters.map((parameter, i) => [`p${i}`, parameter]),
          { lr: 1e-2, weightDecay: 0.1 },
        );
        for (const step of gradients) {
          for (const [i, parameter] of parameters.entries())
            parameter.grad = (step[i] as Tensor).to({ device: place, dtype: type });
          clipGradNorm(parameters, 0.5);
          optimizer.step();
        }
        return [
          ...parameters,
          ...optimizer.state().flatMap(({ exp_avg, exp_avg_sq, master }) => [exp_avg, exp_avg_sq, master]),
        ].map((value) => value.to({ device: 'cpu', dtype: 'float32', copy: true }));
      };
      const [here, there] = [trained('cpu', dtype), trained(device, dtype)];
      // clipped gradients are rounded to the dtype, and a square has twice the rounding of its gradient
      for (const [i, value] of there.entries()) expect(gap(value, here[i] as Tensor)).toBeLessThanOrEqual(bound / 2);
    }));

  it('AdamW scales gradients as it reads them', () =>
    scope(() => {
      seed(6);
      const start = randn([4099]);
      const gradient = randn([4099]);
      const update = (place: string, scale: number) => {
        const parameter = start.to({ device: place, dtype, copy: true });
        using optimizer = new AdamW([['p', parameter]], { lr: 1e-2 });
        parameter.grad = gradient.to({ device: place, dtype, copy: true });
        optimizer.step(tensor([scale], { device: place }));
        return optimizer.state()[0]?.exp_avg.to({ device: 'cpu', copy: true }) as Tensor;
      };
      expect(gap(update(device, 0.25), update('cpu', 0.25))).toBeLessThanOrEqual(bound / 4);
    }));

  it('an update whose loss or gradient is not finite is left out by the device itself', () =>
    scope(() => {
      for (const [loss, gradient, stays] of [
        [1, 2, false],
        [Number.NaN, 2, true],
        [1, Number.POSITIVE_INFINITY, true],
      ] as const) {
        const parameter = ones([5], { device, dtype });
        using optimizer = new AdamW([['p', parameter]], { lr: 0.5 });
        parameter.grad = ones([5], { device, dtype }).mul(gradient);
        const squares = gradSquares([parameter]) as Tensor;
        optimizer.step(aten<Tensor>('attune::clip_factor', squares, tensor(loss, { device }), 1));
        expect(parameter.numbers().every((value) => value === 1)).toBe(stays);
        expect(
          optimizer
            .state()[0]
            ?.exp_avg.numbers()
            .every((value) => value === 0),
        ).toBe(stays);
      }
    }));

  it('the norm of gradients', () =>
    scope(() => {
      seed(7);
      const shapes = [[1], [5], [70_001], [300, 1024], ...Array(200).fill([33])];
      const values = shapes.map((shape) => randn(shape).to(dtype));
      const norm = (place: string) =>
        gradNorm(
          values.map((value) => {
            const parameter = value.to({ device: place, copy: true });
            parameter.grad = value.to({ device: place, copy: true });
            return parameter;
          }),
        );
      const exact = Math.sqrt(values.reduce((sum, value) => sum + value.to('float64').square().sum().item(), 0));
      expect(Math.abs(norm(device) / exact - 1)).toBeLessThanOrEqual(2e-5);
    }));

  it('an update does not depend on where an element lies', () =>
    scope(() => {
      seed(8);
      const size = 10_000;
      const [start, gradient] = [randn([size]), randn([size])];
      const update = (from: number) => {
        const parameter = start.narrow(0, from, size - from).to({ device, dtype, copy: true });
        using optimizer = new AdamW([['p', parameter]], { lr: 1e-2, weightDecay: 0.1, decays: () => true });
        for (let i = 0; i < 2; i++) {
          parameter.grad = gradient.narrow(0, from, size - from).to({ device, dtype, copy: true });
          optimizer.step(tensor([0.3], { device }));
        }
        return noGrad(() => parameter.to({ device: 'cpu', dtype: 'float32', copy: true }));
      };
      const [whole, part] = [update(0), update(3)];
      expect(gap(part, whole.narrow(0, 3, size - 3))).toBe(0);
    }));
});

it('statistics of a row with masked words', () =>
  scope(() => {
    const hidden = tensor([[1, 2]], { device });
    const weight = tensor(
      Float32Array.from({ length: 2 * 64 }, (_, i) => (i % 3) - 1),
      { shape: [64, 2], device },
    );
    const { logp, entropy } = linearLogprob(hidden, weight, tensor(BigInt64Array.of(-1n), { device }));
    expect(logp.item()).toBe(0);
    expect(entropy.item()).toBeGreaterThan(0);
  }));
