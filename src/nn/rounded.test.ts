/** The product of rounded x with a quantised matrix (fast decoding) against a plain computation of the same rounding. */
import { afterEach, describe, expect, it } from 'vitest';
import { aten, randn, scope, seed, setThreads, type Tensor, tensor, threads } from '../tensor/index.ts';
import { QuantisedMatrix, quantTypes } from './quantised.ts';

const ownThreads = threads();
afterEach(() => setThreads(ownThreads));

/** On other CPUs rounding is not faster, and the product is exact. */
const rounds = aten<boolean>('attune::can_round');
const BLOCK = 64;

const float = (values: number[], shape: number[]) => tensor(Float32Array.from(values), { shape });
const multiply = (matrix: QuantisedMatrix, x: Tensor) =>
  aten<Tensor>('attune::rounded_linear', ...matrix.arguments(), x);

function nearestEven(value: number): number {
  const low = Math.floor(value);
  if (value - low !== 0.5) return Math.round(value);
  return low % 2 === 0 ? low : low + 1;
}

/** Each block as whole numbers up to 127, and the value of 1 in it. */
function digitsOf(row: readonly number[]): { digits: number[]; units: number[] } {
  const digits: number[] = [];
  const units: number[] = [];
  for (let at = 0; at < row.length; at += BLOCK) {
    const block = row.slice(at, at + BLOCK);
    const peak = Math.max(...block.map(Math.abs));
    const factor = peak === 0 ? 0 : Math.fround(127 / peak);
    digits.push(...block.map((value) => nearestEven(Math.fround(value * factor))));
    units.push(peak / 127);
  }
  return { digits, units };
}

/** The codes of a matrix's rows as whole numbers, with a unit for each block of 64. */
function codesOf(matrix: QuantisedMatrix): { digits: number[][]; units: number[][] } {
  const { inputs, outputs } = matrix;
  const blocks = Math.ceil(inputs / BLOCK);
  const { codes, scales, levels } = matrix.part(0);
  const all = codes.numbers();
  const rows = Array.from({ length: outputs }, (_, row) => row);
  if (levels === null) {
    const largest = scales.numbers();
    return {
      digits: rows.map((row) => all.slice(row * inputs, (row + 1) * inputs)),
      units: rows.map((row) => new Array(blocks).fill((largest[row] as number) / 127)),
    };
  }
  const whole = levels.numbers().map((level) => nearestEven(Math.fround(level * 127)));
  const each = all.flatMap((pair) => [whole[pair >> 4] as number, whole[pair & 15] as number]);
  const maxima = aten<Tensor>('attune::block_maxima', ...matrix.arguments()).numbers();
  return {
    digits: rows.map((row) => each.slice(row * inputs, (row + 1) * inputs)),
    units: rows.map((row) => maxima.slice(row * blocks, (row + 1) * blocks).map((peak) => peak / 127)),
  };
}

/** The product of the rounded numbers, and the same without signs (to bound its error). */
function plainly(x: Tensor, matrix: QuantisedMatrix): { product: number[]; sizes: number[] } {
  const w = codesOf(matrix);
  const product: number[] = [];
  const sizes: number[] = [];
  for (let m = 0; m < x.size(0); m++) {
    const { digits, units } = digitsOf(x.select(0, m).numbers());
    for (const [n, codes] of w.digits.entries()) {
      let sum = 0;
      let size = 0;
      for (const [i, code] of codes.entries()) {
        const b = Math.floor(i / BLOCK);
        const part = (digits[i] as number) * code * (units[b] as number) * ((w.units[n] as number[])[b] as number);
        sum += part;
        size += Math.abs(part);
      }
      product.push(sum);
      sizes.push(size);
    }
  }
  return { product, sizes };
}

const shapes = [
  [1, 1, 1],
  [1, 7, 65],
  [2, 17, 63],
  [3, 300, 129],
  [1, 21, 512],
  [5, 37, 192],
  [16, 18, 320],
] as const;

describe('the product of rounded x', () => {
  it.each(shapes)('int8 is exact in whole numbers: %i rows, [%i, %i]', (rows, outputs, inputs) => {
    // every block of x and every row of the matrix contains a 127, so nothing is rounded
    const numbers = (count: number, first: (i: number) => boolean) =>
      Array.from({ length: count }, (_, row) =>
        Array.from({ length: inputs }, (_, i) => (first(i) ? 127 : ((i * 7919 + row * 31) % 255) - 127)),
      );
    const x = numbers(rows, (i) => i % BLOCK === 0);
    const w = numbers(outputs, (i) => i === 0);
    scope(() => {
      using matrix = QuantisedMatrix.of(float(w.flat(), [outputs, inputs]), 'int8');
      const found = multiply(matrix, float(x.flat(), [rows, inputs])).numbers();
      const dot = (a: number[], b: number[]) => a.reduce((sum, value, i) => sum + value * (b[i] as number), 0);
      expect(found.map((value) => Math.round(value) + 0)).toEqual(
        x.flatMap((row) => w.map((column) => dot(row, column))),
      );
    });
  });

  // 129 and 65 inputs are not whole blocks: a 4-bit matrix of that width has no product of digits
  it.each(
    quantTypes.flatMap((type) =>
      shapes
        .filter(([, , inputs]) => type === 'int8' || inputs % BLOCK === 0)
        .map((shape) => [type, ...shape] as const),
    ),
  )('%s is that of the rounded numbers: %i rows, [%i, %i]', (type, rows, outputs, inputs) => {
    seed(1);
    scope(() => {
      const x = randn([rows, inputs]);
      using matrix = QuantisedMatrix.of(randn([outputs, inputs]).mul(0.05), type);
      const found = multiply(matrix, x).numbers();
      const exact = matrix.multiply(x).numbers();
      if (!rounds) return expect(found).toEqual(exact);
      const { product, sizes } = plainly(x, matrix);
      for (const [i, value] of product.entries())
        expect(Math.abs((found[i] as number) - value)).toBeLessThan(3e-7 * (sizes[i] as number));
      // and close to the exact product: its errors are those of 8 bits
      const norm = (values: number[]) => Math.sqrt(values.reduce((sum, value) => sum + value ** 2, 0));
      expect(norm(found.map((value, i) => value - (exact[i] as number)))).toBeLessThan(0.02 * norm(exact));
    });
  });

  it.each(quantTypes)('%s: a row has the same result to the bit whatever rows come with it', (type) => {
    seed(5);
    for (const inputs of [512, 600, 75]) {
      using matrix = QuantisedMatrix.of([randn([21, inputs]), randn([30, inputs]).mul(9)], type);
      const x = randn([23, inputs]);
      const together = multiply(matrix, x).numbers();
      for (const [i, count] of [1, 2, 3, 4, 7, 16].entries()) {
        setThreads([1, 3, 16][i % 3] as number);
        for (const first of [0, 5])
          expect(multiply(matrix, x.narrow(0, first, count)).numbers()).toEqual(
            together.slice(first * 51, (first + count) * 51),
          );
      }
    }
  });

  it('gives the same with the maxima as float32', () => {
    seed(7);
    scope(() => {
      using matrix = QuantisedMatrix.of([randn([21, 320]), randn([30, 320])], 'int4');
      const maxima = aten<Tensor>('attune::block_maxima', ...matrix.arguments());
      const [codes, , , , levels, ...shape] = matrix.arguments();
      for (const rows of [1, 5]) {
        const x = randn([rows, 320]);
        const found = aten<Tensor>('attune::rounded_linear', codes, maxima, null, null, levels, ...shape, x);
        expect(found.numbers()).toEqual(multiply(matrix, x).numbers());
      }
    });
  });

  it.each(quantTypes)('%s: zeros stay zeros, and what is no number stays in its row', (type) => {
    seed(6);
    scope(() => {
      using matrix = QuantisedMatrix.of(randn([40, 512]), type);
      const values = randn([3, 512]).numbers();
      values.fill(0, 0, 512);
      values[600] = Number.POSITIVE_INFINITY;
      const found = multiply(matrix, float(values, [3, 512]));
      expect(found.select(0, 0).abs().max().item()).toBe(0);
      for (const value of found.select(0, 1).numbers()) expect(Number.isFinite(value)).toBe(false);
      for (const value of found.select(0, 2).numbers()) expect(Number.isFinite(value)).toBe(true);
    });
  });

  it('refuses what it does not take', () => {
    using matrix = QuantisedMatrix.of(randn([4, 64]), 'int8');
    expect(() => multiply(matrix, randn([2, 63]))).toThrow(/expected x/);
    expect(() => multiply(matrix, randn([64]))).toThrow(/expected x/);
    expect(() => multiply(matrix, randn([2, 64], { dtype: 'float64' }))).toThrow(/expected x/);
    expect(() => aten('attune::block_maxima', ...matrix.arguments())).toThrow(/4 bits/);
  });
});
