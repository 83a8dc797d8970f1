/** Every kind of argument and return that ATen's schemas use, through the one door. */
import { describe, expect, it } from 'vitest';
import { native } from './engine/native.ts';
import {
  arange,
  aten,
  cudaCount,
  generator,
  liveTensors,
  ones,
  scope,
  seed,
  Tensor,
  TensorError,
  tensor,
  zeros,
} from './index.ts';
import { findOperator, internalOperator, invoke, type Operator, operator } from './operator.ts';

const close = (actual: Tensor, expected: number[], digits = 6) => {
  const values = actual.numbers();
  expect(values).toHaveLength(expected.length);
  for (const [i, value] of expected.entries()) expect(values[i]).toBeCloseTo(value, digits);
};

describe('a device that is not there', () => {
  const missing = `cuda:${cudaCount()}`;
  const said = new RegExp(`The device "${missing}" was asked for, but .*Take .*attune doctor`);
  it('is named with what to do', () => {
    expect(() => zeros([1], { device: missing })).toThrow(said);
    expect(() => tensor([1], { device: missing })).toThrow(said);
    expect(() => tensor([1]).to({ device: missing })).toThrow(said);
    expect(() => aten('ones', [1], { device: missing })).toThrow(TensorError);
  });
  it('is told from a dtype', () => {
    expect(() => zeros([1], { device: 'gpu' })).toThrow('There is no device "gpu": take cpu, cuda or cuda:N.');
    expect(() => tensor([1]).to('mps')).toThrow('to: "mps" is neither a dtype nor a device');
    expect(tensor([1]).to('float64').dtype).toBe('float64');
  });
});

describe('arguments', () => {
  const x = tensor([
    [1, 2],
    [3, 4],
  ]);

  it('Tensor and Scalar', () => {
    expect(aten('add.Tensor', x, x, 0.5).tolist()).toEqual([
      [1.5, 3],
      [4.5, 6],
    ]);
    expect(aten('mul.Scalar', x, 2).tolist()).toEqual([
      [2, 4],
      [6, 8],
    ]);
  });

  it('Scalar keeps integers integral, and takes bigint, boolean and complex', () => {
    const whole = tensor([1n, 2n]);
    expect(aten('add.Scalar', whole, 3).dtype).toBe('int64');
    expect(aten('add.Scalar', whole, 0.5).dtype).toBe('float32');
    expect(aten('add.Scalar', whole, 2n ** 62n).data()).toEqual(BigInt64Array.of(2n ** 62n + 1n, 2n ** 62n + 2n));
    expect(aten('add.Scalar', tensor([true, false]), true).tolist()).toEqual([1, 1]);
    const complex = aten('mul.Scalar', x, { re: 0, im: 2 });
    expect(complex.dtype).toBe('complex64');
    expect(complex.tolist()).toEqual([
      [
        { re: 0, im: 2 },
        { re: 0, im: 4 },
      ],
      [
        { re: 0, im: 6 },
        { re: 0, im: 8 },
      ],
    ]);
    expect(Object.is(aten('full', [1], -0, 'float64').data()[0], -0)).toBe(true);
  });

  it('Tensor?: given, null and left out', () => {
    const weight = tensor([[1, 1]]);
    expect(aten('linear', x, weight, tensor([10])).tolist()).toEqual([[13], [17]]);
    expect(aten('linear', x, weight, null).tolist()).toEqual([[3], [7]]);
    expect(aten('linear', x, weight).tolist()).toEqual([[3], [7]]);
  });

  it('Tensor[] and Tensor?[]', () => {
    expect(aten('cat', [x, x], 1).shape).toEqual([2, 4]);
    expect(aten('index.Tensor', x, [null, tensor([1n])]).tolist()).toEqual([[2], [4]]);
    expect(aten('index.Tensor', x, [tensor([1n, 0n]), tensor([1n, 1n])]).tolist()).toEqual([4, 2]);
  });

  it('int, int[] and a bare number for int[2]', () => {
    expect(aten('select.int', x, 1, 0).tolist()).toEqual([1, 3]);
    expect(aten('sum.dim_IntList', x, [0, 1]).item()).toBe(10);
    const image = tensor(
      Array.from({ length: 16 }, (_, i) => i),
      { shape: [1, 1, 4, 4] },
    );
    expect(aten('avg_pool2d', image, 2).tolist()).toEqual(aten('avg_pool2d', image, [2, 2]).tolist());
    expect(aten('avg_pool2d', image, 2).tolist()).toEqual([
      [
        [
          [2.5, 4.5],
          [10.5, 12.5],
        ],
      ],
    ]);
    expect(aten('avg_pool2d', image, [2]).tolist()).toEqual(aten('avg_pool2d', image, 2).tolist());
    expect(aten('reflection_pad1d', tensor([[1, 2, 3]]), 1).tolist()).toEqual([[2, 1, 2, 3, 2]]);
    expect(() => aten('reflection_pad1d', tensor([[1, 2, 3]]), [])).toThrow(
      /"padding" \((Sym)?[Ii]nt\[\]\): expected 2 elements, got 0/,
    );
    expect(() => aten('avg_pool2d', image, [1, 2, 3])).toThrow(/expected 2 elements, got 3/);
    expect(aten('avg_pool2d', image, [2, 2], []).shape).toEqual([1, 1, 2, 2]); // no stride: that of the kernel
    expect(aten('full', [2n, 1], 7, 'int64').tolist()).toEqual([[7], [7]]);
  });

  it('float, float[] and float?', () => {
    expect(aten('leaky_relu', tensor([-1]), 0.25).item()).toBe(-0.25);
    const [counts] = aten<Tensor[]>('histogram.bin_ct', tensor([0, 1, 2, 9]), 2, { range: [0, 4] });
    expect(counts?.tolist()).toEqual([2, 1]);
    expect(aten('nan_to_num', tensor([Number.NaN]), 3.5).item()).toBe(3.5);
    expect(aten('nan_to_num', tensor([Number.NaN])).item()).toBe(0);
  });

  it('bool, bool[] and str', () => {
    expect(aten('sum.dim_IntList', x, [1], true).shape).toEqual([2, 1]);
    const backward = internalOperator('convolution_backward') as Operator; // the only kind that takes bool[]
    const [gradInput, gradWeight, gradBias] = invoke(backward, [
      ones([1, 1, 2, 2]),
      ones([1, 1, 2, 2]),
      ones([1, 1, 1, 1]),
      [1],
      [1, 1],
      [0, 0],
      [1, 1],
      false,
      [0, 0],
      1,
      [true, false, true],
    ]) as (Tensor | null)[];
    expect(gradInput?.shape).toEqual([1, 1, 2, 2]);
    expect(gradWeight).toBeNull();
    expect(gradBias?.tolist()).toEqual([4]);
    // https://pytorch.org: gelu(1) = 0.8413447; its tanh form 0.8411920
    expect(aten('gelu', tensor([1]), { approximate: 'none' }).item()).toBeCloseTo(0.8413447, 6);
    expect(aten('gelu', tensor([1]), { approximate: 'tanh' }).item()).toBeCloseTo(0.841192, 6);
  });

  it('Device, dtype, layout and memory format by their names', () => {
    expect(aten('zeros', [2], { dtype: 'int16', device: 'cpu', layout: 'strided' }).dtype).toBe('int16');
    expect(aten('zeros', [2], { device: 'meta' }).device).toBe('meta');
    expect(() => aten('zeros', [2], { dtype: 'float31' })).toThrow(/no dtype "float31"/);
    expect(() => aten('zeros', [2], { dtype: 6 })).toThrow(/argument "dtype" \(ScalarType\?\): expected a name/);
    expect(() => aten('zeros', [2], { layout: 'striped' })).toThrow(/unknown layout "striped": one of strided/);
    expect(() => aten('zeros', [2], { device: 'gpu' })).toThrow(/gpu/);
    const image = arange(0, 8).reshape(1, 2, 2, 2);
    const last = aten('contiguous', image, { memory_format: 'channels_last' });
    expect(last.tolist()).toEqual(image.tolist());
    expect(aten('as_strided', last, [8], [1]).tolist()).toEqual([0, 4, 1, 5, 2, 6, 3, 7]); // in memory order
    expect(() => aten('select.int', x, 'float32', 0)).toThrow(/argument "dim" \(int\): expected an integer/);
  });

  it('Generator: draws of its own, reproducible, apart from the default one', () => {
    const first = aten('randn.generator', [4], generator(11)).numbers();
    seed(5);
    const undisturbed = aten('randn', [4]).numbers();
    seed(5);
    const own = generator(11);
    expect(aten('randn.generator', [4], own).numbers()).toEqual(first);
    expect(aten('randn.generator', [4], own).numbers()).not.toEqual(first);
    expect(aten('randn', [4]).numbers()).toEqual(undisturbed);
    expect(aten('multinomial', tensor([0, 1, 0]), 1, { generator: own }).item()).toBe(1);
    expect(() => aten('randn.generator', [4], 1)).toThrow(/Generator/);
    expect(() => aten('add.Tensor', x, own)).toThrow(/argument "other" is Tensor, got Generator/);
    expect(() => generator(1.5)).toThrow(/expected an integer/);
    expect(() => generator(1, 'meta')).toThrow(/meta/);
  });

  it('keywords: in any order, keyword-only ones too, refused when twice or unknown', () => {
    expect(aten('sum.dim_IntList', x, { keepdim: true, dim: [0] }).tolist()).toEqual([[4, 6]]);
    expect(aten('add.Tensor', x, { alpha: 2, other: x }).tolist()).toEqual([
      [3, 6],
      [9, 12],
    ]);
    expect(() => aten('add.Tensor', x, x, { other: x })).toThrow(/"other" is given twice/);
    expect(() => aten('add.Tensor', x, x, { aplha: 2 })).toThrow(/no argument "aplha". Did you mean "alpha"\?/);
  });

  it('defaults fill what is left out; what has none is asked for', () => {
    expect(aten('softmax.int', x, -1).shape).toEqual([2, 2]);
    expect(() => aten('softmax.int', x)).toThrow(/argument "dim" \(int\) is missing/);
    expect(() => aten('neg', x, 1)).toThrow(/takes 1 arguments, got 2/);
  });
});

describe('returns', () => {
  const x = tensor([
    [1, 2],
    [3, 4],
  ]);

  it('several', () => {
    const [values, indices] = aten<[Tensor, Tensor]>('max.dim', x, 0);
    expect(values.tolist()).toEqual([3, 4]);
    expect(indices.tolist()).toEqual([1, 1]);
    expect(indices.dtype).toBe('int64');
  });

  it('a list', () => {
    expect(aten<Tensor[]>('unbind.int', x, 0).map((row) => row.tolist())).toEqual([
      [1, 2],
      [3, 4],
    ]);
    expect(aten<Tensor[]>('_foreach_add.Scalar', [x, x.neg()], 1).map((item) => item.tolist())).toEqual([
      [
        [2, 3],
        [4, 5],
      ],
      [
        [0, -1],
        [-2, -3],
      ],
    ]);
  });

  it('nothing', () => {
    const a = ones([2]);
    const b = ones([3]);
    expect(aten<undefined>('_foreach_add_.Scalar', [a, b], 2)).toBeUndefined();
    expect(a.tolist()).toEqual([3, 3]);
    expect(b.tolist()).toEqual([3, 3, 3]);
  });

  it('numbers, booleans, scalars and dtypes', () => {
    expect(aten<number>('size.int', x, 0)).toBe(2);
    expect(aten<boolean>('is_floating_point', x)).toBe(true);
    const scalarOf = (x: Tensor) => invoke(internalOperator('_local_scalar_dense') as Operator, [x]);
    expect(scalarOf(tensor([2.5]))).toBe(2.5);
    expect(scalarOf(tensor([true]))).toBe(true);
    expect(scalarOf(tensor([2n ** 60n]))).toBe(2n ** 60n);
    expect(scalarOf(aten('complex', tensor([1]), tensor([-2])))).toEqual({ re: 1, im: -2 });
    expect(aten<number>('q_scale', aten('quantize_per_tensor', x, 0.25, 3, 'QUInt8'))).toBe(0.25);
  });

  it('QScheme, as its number', () => {
    expect(typeof aten<number>('qscheme', aten('quantize_per_tensor', x, 0.25, 3, 'QUInt8'))).toBe('number');
  });

  it('in place: the very tensor, with its new shape', () => {
    const y = ones([2, 1]);
    expect(y.add_(1)).toBe(y);
    expect(y.tolist()).toEqual([[2], [2]]);
    expect(y.shape).toEqual([2, 1]);
    expect(aten('squeeze_.dim', y, 1)).toBe(y);
    expect(y.shape).toEqual([2]);
    const [same, also] = [zeros([2, 2]), zeros([2, 2])];
    const [first, second] = aten<[Tensor, Tensor]>('max.dim_max', x, 0, false, {
      max: same,
      max_values: also.to('int64'),
    });
    expect(first).toBe(same);
    expect(second).toBeInstanceOf(Tensor);
  });

  it("out=: written into the tensor that was given, which takes the result's shape", () => {
    const out = zeros([0]);
    expect(out.shape).toEqual([0]);
    expect(aten('add.out', x, x, { out })).toBe(out);
    expect(out.tolist()).toEqual([
      [2, 4],
      [6, 8],
    ]);
    expect(out.shape).toEqual([2, 2]);
    expect(() => aten('add.out', x, x)).toThrow(/argument "out" \(Tensor\) is missing/);
  });

  it('leaves nothing behind', () => {
    const before = liveTensors();
    scope(() => {
      aten('max.dim', x, 0);
      aten('unbind.int', x, 0);
      x.add(1).mul(2);
    });
    expect(liveTensors()).toBe(before);
  });
});

describe('lookup', () => {
  it('resolves every operator of this libtorch', () => {
    const all = native.overloads('');
    expect(all.length).toBeGreaterThan(2500);
    for (const name of all) {
      const found = internalOperator(name);
      expect(found, name).not.toBeNull();
      expect(found?.schema.startsWith(name), `${name}: ${found?.schema}`).toBe(true);
    }
  });

  it('helps with a name that is not there', () => {
    expect(() => aten('add')).toThrow(/no operator "add". Its overloads are: .*add\.Tensor/);
    expect(() => aten('soft_max.int', ones([1]))).toThrow(
      /no operator "soft_max.int" in this libtorch. Did you mean "softmax"\?/,
    );
    expect(findOperator('attune::nothing')).toBeNull();
    expect(() => operator('')).toThrow(/no operator/);
    expect(() => aten(undefined as never)).toThrow(/by its name, not by undefined/);
  });

  it('finds our own operator by the same door', () => {
    expect(operator('attune::linear_logprob').arguments.map((info) => info.name)).toEqual([
      'hidden',
      'weight',
      'targets',
      'temperature',
      'chunk',
      'keep',
    ]);
  });
});

describe('numbers against PyTorch 2.13', () => {
  it('a composite', () => {
    const x = tensor([
      [0.5, -1.5, 2],
      [0.25, 3, -0.75],
    ]);
    close(x.logSoftmax(-1), [-1.7258021, -3.7258022, -0.2258021, -2.8338315, -0.0838315, -3.8338315]);
    close(
      aten('layer_norm', x, [3], null, null, 1e-5),
      [0.1162474, -1.2787209, 1.1624736, -0.3679111, 1.3665271, -0.9986158],
    );
  });
});
