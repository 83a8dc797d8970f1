/** Quantised matrices against the numbers of fixtures/quantised_numbers.py, which knows nothing of native/. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  aten,
  type DType,
  linear,
  liveTensors,
  noGrad,
  randn,
  scope,
  seed,
  type Tensor,
  tensor,
  zeros,
} from '../tensor/index.ts';
import { QuantisedMatrix, type QuantType, quantisedBytes, quantTypes } from './quantised.ts';

interface Numbers {
  codes: number[];
  scales: number[];
  nested?: number[];
  offset?: number;
  product: number[];
  error: number;
}
const known = JSON.parse(readFileSync(new URL('./fixtures/quantised.json', import.meta.url), 'utf8')) as Record<
  QuantType,
  Numbers
> & { shape: [number, number]; weight: number[]; x: number[]; levels: number[] };

const float = (values: number[], shape = [values.length]) => tensor(Float32Array.from(values), { shape });
const weight = () => float(known.weight, known.shape);
const partsOf = (matrix: QuantisedMatrix) =>
  Object.fromEntries(Array.from(matrix.tensors(), ([name, part]) => [name, part.numbers()]));
const furthest = (a: Tensor, b: Tensor) => scope(() => a.sub(b).abs().max().item());
const relative = (found: Tensor, expected: Tensor) =>
  scope(() => Math.sqrt(found.sub(expected).square().mean().item() / expected.square().mean().item()));

describe('the format', () => {
  it.each(quantTypes)('%s is what numpy makes of the definition', (type) => {
    const expected = known[type];
    using matrix = QuantisedMatrix.of(weight(), type);
    const { codes, scales, nested } = partsOf(matrix);
    expect(codes).toEqual(expected.codes);
    if (type === 'int4') expect(scales).toEqual(expected.scales);
    else for (const [i, scale] of expected.scales.entries()) expect(scales?.[i]).toBeCloseTo(scale, 8);
    if (expected.nested !== undefined) expect(nested?.[0]).toBeCloseTo(expected.nested[0] as number, 6);
    expect(matrix.offset).toBeCloseTo(expected.offset ?? 0, 6);
    expect(relative(matrix.dequantise(), weight())).toBeCloseTo(expected.error, 6);
    const product = matrix.multiply(float(known.x).unsqueeze(0)).numbers();
    for (const [i, value] of expected.product.entries()) expect(product[i]).toBeCloseTo(value, 5);
  });

  it('of 4 bits has the quantiles of the normal distribution as its levels', () => {
    // a block that holds every level: its maximum is 1, and so is that of all others
    const row = Array.from({ length: 64 }, (_, i) => known.levels[i % 16] as number);
    using matrix = QuantisedMatrix.of(float(row, [1, 64]), 'int4');
    const found = matrix.dequantise().numbers();
    for (const [i, level] of row.entries()) expect(found[i]).toBeCloseTo(level, 6);
  });

  it.each([
    ['int8', 0.01, 0.5 / 127],
    ['int4', 0.1, 0.5 * 0.304 + 0.02],
  ] as const)('%s of normal weights: error below %f of their spread, %f of the maximum at most', (type, rms, most) => {
    seed(1);
    const plain = randn([300, 512]).mul(0.02);
    using matrix = QuantisedMatrix.of(plain, type);
    expect(relative(matrix.dequantise(), plain)).toBeLessThan(rms);
    // by the maximum of each row, which no block's exceeds
    const share = matrix.dequantise().sub(plain).abs().amax(1).div(plain.abs().amax(1));
    expect(share.max().item()).toBeLessThan(most * 1.001);
  });

  it.each(quantTypes)('%s takes zeros, odd sizes and other dtypes, and tells its bytes', (type) => {
    seed(2);
    using nothing = QuantisedMatrix.of(zeros([3, 70]), type);
    expect(nothing.dequantise().abs().max().item()).toBe(0);
    for (const [outputs, inputs] of [
      [1, 1],
      [7, 65],
      [17, 63],
      [300, 129],
    ] as const) {
      const plain = randn([outputs, inputs], { dtype: 'float32' });
      using matrix = QuantisedMatrix.of(plain, type);
      expect(matrix.dequantise().shape).toEqual([outputs, inputs]);
      expect(relative(matrix.dequantise(), plain)).toBeLessThan(type === 'int8' ? 0.015 : 0.13);
      expect(matrix.bytes).toBe(quantisedBytes(outputs, inputs, type));
      using half = QuantisedMatrix.of(plain.to('bfloat16').t().contiguous().t(), type);
      expect(relative(half.dequantise('bfloat16').to('float32'), plain)).toBeLessThan(type === 'int8' ? 0.02 : 0.14);
    }
  });

  it.each(quantTypes)('%s comes out of ATen’s own operators the same, as devices without a kernel have it', (type) => {
    for (const inputs of [128, 77]) {
      using matrix = QuantisedMatrix.of(randn([90, inputs]), type);
      const { codes, scales, nested = null } = Object.fromEntries(matrix.tensors());
      const composed = aten('attune::dequantise_composed', codes, scales, nested, matrix.offset, inputs, 'float32');
      expect(furthest(composed, matrix.dequantise())).toBeLessThan(1e-6);
    }
  });
});

describe('the product', () => {
  // few rows go through our own product, many through panels and a BLAS; 600 outputs are three panels
  it.each(quantTypes.flatMap((type) => [1, 5, 48, 200].map((rows) => [type, rows] as const)))(
    '%s: %d rows times the matrix, and their gradient, are those of the plain one',
    (type, rows) => {
      seed(3);
      for (const inputs of [192, 75]) {
        using matrix = QuantisedMatrix.of(randn([600, inputs]).mul(0.05), type);
        const plain = matrix.dequantise();
        const bias = randn([600]).requiresGrad_();
        const x = randn([rows, inputs]).requiresGrad_();
        const upstream = randn([rows, 600]);
        const grads = (output: Tensor) => {
          output.backward(upstream);
          const found = [x.grad, bias.grad].map((grad) => (grad as Tensor).clone()) as [Tensor, Tensor];
          for (const leaf of [x, bias]) leaf.grad = null;
          return found;
        };
        const output = matrix.multiply(x, bias);
        const expected = linear(x, plain, bias);
        expect(furthest(output.detach(), expected.detach())).toBeLessThan(1e-5);
        const [dx, db] = grads(output);
        const [wantedDx, wantedDb] = grads(expected);
        expect(furthest(dx, wantedDx)).toBeLessThan(2e-5);
        expect(furthest(db, wantedDb)).toBeLessThan(1e-5);
        expect(
          furthest(
            noGrad(() => matrix.multiply(x, bias)),
            output.detach(),
          ),
        ).toBeLessThan(1e-5);
      }
    },
  );

  it.each(['bfloat16', 'float64'] as DType[])('keeps the dtype of what it is given: %s', (dtype) => {
    seed(4);
    using matrix = QuantisedMatrix.of(randn([40, 64]), 'int4');
    const x = randn([3, 2, 64]).to(dtype).requiresGrad_();
    const output = matrix.multiply(x);
    expect([output.dtype, output.shape]).toEqual([dtype, [3, 2, 40]]);
    const expected = linear(x, matrix.dequantise(dtype));
    expect(furthest(output.detach().to('float32'), expected.detach().to('float32'))).toBeLessThan(1e-2);
    output.sum().backward();
    expect(x.grad?.dtype).toBe(dtype);
  });

  it('keeps nothing: neither tensors nor, for backward, the plain matrix', () => {
    using matrix = QuantisedMatrix.of(randn([64, 64]), 'int4');
    const before = liveTensors();
    scope(() => {
      const x = randn([4, 64]).requiresGrad_();
      matrix.multiply(x).sum().backward();
    });
    expect(liveTensors()).toBe(before);
  });
});

it('refuses what is no matrix of weights', () => {
  const bad = tensor(Float32Array.of(1, Number.NaN), { shape: [1, 2] });
  expect(() => QuantisedMatrix.of(bad, 'int8')).toThrow(/not finite/);
  expect(() => QuantisedMatrix.of(randn([4]), 'int4')).toThrow(/matrix on the CPU/);
  using matrix = QuantisedMatrix.of(randn([4, 64]), 'int4');
  expect(() => matrix.multiply(randn([2, 60]))).toThrow(/32 columns are not those of 60 inputs/);
  expect(() => matrix.multiply(randn([2, 64]), randn([3]))).toThrow(/bias of \[4\]/);
  const { codes, scales } = Object.fromEntries(matrix.tensors());
  expect(() => aten('attune::dequantise', codes, scales, null, 0, 64, 'float32')).toThrow(/nested does not belong/);
  expect(() => aten('attune::dequantise', codes, codes, null, 0, 64, 'float32')).toThrow(/scales does not belong/);
});
