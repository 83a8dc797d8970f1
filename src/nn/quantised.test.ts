/** Quantised matrices against the numbers of fixtures/quantised_numbers.py, which shares no code with native/. */
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import {
  aten,
  type DType,
  linear,
  liveTensors,
  noGrad,
  randn,
  scope,
  seed,
  setThreads,
  type Tensor,
  tensor,
  threads,
  zeros,
} from '../tensor/index.ts';
import { QuantisedMatrix, type QuantType, quantisedBytes, quantTypes } from './quantised.ts';

interface Numbers {
  /** The first codes, or more. */
  codes: number[];
  scales: number[];
  nested?: number[];
  offset?: number;
  product: number[];
}
interface Case extends Record<QuantType, Numbers> {
  name: string;
  shape: [number, number];
  outlier: [number, number] | null;
  zeros: [number, number][];
}
const known = JSON.parse(readFileSync(new URL('./fixtures/quantised.json', import.meta.url), 'utf8')) as {
  levels: number[];
  cases: Case[];
};

const ownThreads = threads();
afterEach(() => setThreads(ownThreads));

const float = (values: number[], shape = [values.length]) => tensor(Float32Array.from(values), { shape });
const furthest = (a: Tensor, b: Tensor) => scope(() => a.sub(b).abs().max().item());
const relative = (found: Tensor, expected: Tensor) =>
  scope(() => Math.sqrt(found.sub(expected).square().mean().item() / expected.square().mean().item()));

/** The matrices of fixtures/quantised_numbers.py: f32 holds their numbers as they are. */
function weightOf({ shape: [rows, columns], outlier, zeros: cleared }: Case): Tensor {
  const values = Array.from({ length: rows * columns }, (_, i) => {
    const row = Math.floor(i / columns) % 8;
    return (((((i * 7919) % 1009) - 504) / 512) * (row + 1)) / 8;
  });
  if (outlier !== null) values[outlier[0]] = outlier[1];
  for (const [from, to] of cleared) values.fill(0, from, to);
  return float(values, [rows, columns]);
}

describe('the format', () => {
  const named = known.cases.flatMap((each) => quantTypes.map((type) => [type, each.name, each] as const));
  it.each(named)('%s is what numpy makes of the definition: %s', (type, _, each) => {
    const expected = each[type];
    using matrix = QuantisedMatrix.of(weightOf(each), type);
    const { codes, scales, nested } = matrix.part(0);
    const size = expected.codes.length;
    expect(codes.numbers().slice(0, size)).toEqual(expected.codes);
    if (type === 'int4') expect(scales.numbers()).toEqual(expected.scales);
    else for (const [i, scale] of expected.scales.entries()) expect(scales.numbers()[i]).toBeCloseTo(scale, 7);
    const largest = nested?.largest.numbers() ?? [];
    expect(largest).toHaveLength(expected.nested?.length ?? 0);
    for (const [i, value] of (expected.nested ?? []).entries()) expect(largest[i]).toBeCloseTo(value, 5);
    expect(nested?.offset ?? 0).toBeCloseTo(expected.offset ?? 0, 6);
    const x = float(Array.from({ length: each.shape[1] }, (_, i) => Math.cos(0.37 * i))).unsqueeze(0);
    for (const product of [matrix.multiply(x), linear(x, matrix.dequantise())])
      for (const [i, value] of product.numbers().entries()) expect(value).toBeCloseTo(expected.product[i] as number, 4);
  });

  it.each(quantTypes)('%s quantises the parts of a joined matrix each for itself', (type) => {
    const [first, second, third] = [drawnMatrix(5, 77, 1), drawnMatrix(8, 77, 30), drawnMatrix(4, 77, 0.01)];
    using joined = QuantisedMatrix.of([first, second, third], type);
    expect(joined.bytes).toBe(quantisedBytes([5, 8, 4], 77, type));
    const alone = [first, second, third].map((part) => QuantisedMatrix.of(part, type));
    expect(joined.dequantise().numbers()).toEqual(alone.flatMap((part) => part.dequantise().numbers()));
    for (const [i, own] of alone.entries()) {
      const { codes, scales, nested } = joined.part(i);
      expect([codes.numbers(), scales.numbers()]).toEqual([own.part(0).codes.numbers(), own.part(0).scales.numbers()]);
      expect(nested?.offset).toBe(own.part(0).nested?.offset);
    }
    // joining parts that are already quantised changes nothing
    using again = QuantisedMatrix.join(alone.map((part) => part.part(0)));
    expect(again.dequantise().numbers()).toEqual(joined.dequantise().numbers());
    for (const part of alone) part.dispose();
  });

  it('of 4 bits has the quantiles of the normal distribution as its levels', () => {
    // a block that holds every level: its maximum is 1, as is that of all others
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
    // relative to each row's maximum, which bounds that of every block
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
      expect(matrix.bytes).toBe(quantisedBytes([outputs], inputs, type));
      using half = QuantisedMatrix.of(plain.to('bfloat16').t().contiguous().t(), type);
      expect(relative(half.dequantise('bfloat16').to('float32'), plain)).toBeLessThan(type === 'int8' ? 0.02 : 0.14);
    }
  });

  it.each(quantTypes)('%s comes out of ATen’s own operators the same, as devices without a kernel have it', (type) => {
    for (const inputs of [128, 77]) {
      using matrix = QuantisedMatrix.of([randn([90, inputs]), randn([7, inputs])], type);
      const composed = aten('attune::dequantise_composed', ...matrix.arguments(), 'float32');
      expect(furthest(composed, matrix.dequantise())).toBeLessThan(1e-6);
    }
  });
});

function drawnMatrix(rows: number, columns: number, scale: number): Tensor {
  return randn([rows, columns]).mul(scale);
}

describe('the product', () => {
  // few rows go through our own product, many through panels and BLAS; 600 outputs are three panels
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

  // 600 and 75 inputs are not whole blocks, 512 are; the parts meet within a tile of columns
  it.each(quantTypes)('%s: a row has the same result to the bit whatever rows come with it', (type) => {
    seed(5);
    for (const inputs of [512, 600, 75]) {
      using matrix = QuantisedMatrix.of([randn([21, inputs]), randn([30, inputs]).mul(9)], type);
      const x = randn([23, inputs]);
      const together = matrix.multiply(x).numbers();
      for (const [i, count] of [1, 2, 3, 4, 7, 16].entries()) {
        setThreads([1, 3, 16][i % 3] as number);
        for (const first of [0, 5])
          expect(matrix.multiply(x.narrow(0, first, count)).numbers()).toEqual(
            together.slice(first * 51, (first + count) * 51),
          );
      }
    }
  });

  it.each(quantTypes)('%s: large and small inputs side by side, and what is no number, stay in their rows', (type) => {
    seed(6);
    using matrix = QuantisedMatrix.of(randn([40, 512]), type);
    const x = randn([4, 512]);
    const values = x.numbers();
    values[3] = 1e6; // an outlier in the first row; the second is tiny, the third zero
    for (let i = 512; i < 1024; i++) values[i] = (values[i] as number) * 1e-15;
    values.fill(0, 1024, 1536);
    values[1536] = Number.POSITIVE_INFINITY;
    const mixed = float(values, [4, 512]);
    const found = matrix.multiply(mixed).narrow(0, 0, 3);
    const expected = linear(mixed.to('float64'), matrix.dequantise('float64')).to('float32').narrow(0, 0, 3);
    for (const row of [0, 1]) expect(relative(found.select(0, row), expected.select(0, row))).toBeLessThan(1e-6);
    expect(found.select(0, 2).abs().max().item()).toBe(0);
    for (const value of matrix.multiply(mixed).select(0, 3).numbers()) expect(Number.isFinite(value)).toBe(false);
  });

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
  expect(() => matrix.multiply(randn([2, 60]))).toThrow(/60 columns, the matrix 64 inputs/);
  expect(() => matrix.multiply(randn([2, 64]), randn([3]))).toThrow(/bias of \[4\]/);
  const [codes, scales, nested, offsets, levels] = matrix.arguments();
  const plain = (...parts: unknown[]) => aten('attune::dequantise', ...parts, 'float32');
  expect(() => plain(codes, scales, null, null, levels, [4], 64, 64)).toThrow(/scales does not belong/);
  expect(() => plain(codes, codes, nested, offsets, levels, [4], 64, 64)).toThrow(/scales does not belong/);
  expect(() => plain(codes, scales, nested, offsets, null, [4], 64, 64)).toThrow(/levels does not belong/);
  expect(() => plain(codes, scales, nested, null, levels, [4], 64, 64)).toThrow(/offsets does not belong/);
  expect(() => plain(codes, scales, nested, offsets, levels, [4], 60, 64)).toThrow(/128 codes are not those of 4 rows/);
  expect(() => plain(codes, scales, nested, offsets, levels, [4], 64, 63)).toThrow(/an even number is wanted/);
  expect(() => plain(codes, scales, nested, offsets, levels, [-4, 8], 64, 64)).toThrow(/cannot have -4 rows/);
});
