/**
 * linear: our own products on the CPU, whose loops differ with the number of rows and with sizes that are not whole
 * vectors.
 */
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { integers, linear, linearLogprob, randn, seed, setThreads, type Tensor, threads } from './index.ts';

const usual = threads();
afterEach(() => setThreads(usual));

const largest = (tensor: Tensor) => tensor.abs().max().item() as number;
/** The rounding error of a result in bf16, relative to its size. */
const rounding = { float32: 0, bfloat16: 2 ** -8 };

describe('linear', () => {
  const sizes = [
    [1, 1],
    [3, 16],
    [17, 31],
    [40, 130],
    [64, 1024],
    [100, 300],
    [47, 1027],
    [272, 2050],
  ] as const;
  const dtypes = ['float32', 'bfloat16'] as const;

  it.each(dtypes.flatMap((dtype) => sizes.map((size) => [...size, dtype] as const)))(
    '%i outputs of %i inputs in %s: the sums of f64 to rounding, and the same bits whatever rows come with them',
    (outputs, inputs, dtype) => {
      seed(outputs);
      const random = (...shape: number[]) => randn(shape).to(dtype);
      const [x, weight, bias] = [random(40, inputs), random(outputs, inputs), random(outputs)];
      const expected = linear(x.to('float64'), weight.to('float64'), bias.to('float64'));
      const together = linear(x, weight, bias);
      const error = together.to('float64').sub(expected).abs();
      expect(largest(error.sub(expected.abs().mul(rounding[dtype])).clamp(0))).toBeLessThan(1e-6 * inputs);
      const numbers = together.numbers();
      for (const [i, count] of [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 15, 16, 17, 33, 36].entries()) {
        setThreads([1, 2, 3, 16][i % 4] as number);
        for (const first of [0, 3])
          expect(linear(x.narrow(0, first, count), weight, bias).numbers()).toEqual(
            numbers.slice(first * outputs, (first + count) * outputs),
          );
      }
    },
  );

  // 1,024 inputs: kPassInputs of native/cpu/skinny/inputs.cc is 64 rows of them; 240 rows are a pass of many.h
  const cpu = readFileSync('/proc/cpuinfo', 'utf8');
  const takesAllRows = (inputs: number) =>
    process.arch === 'arm64' ? inputs <= 1024 : /\bavx2\b/.test(cpu) && !/\bavx512f\b/.test(cpu);
  const parts: [first: number, count: number][] = [
    [0, 1],
    [63, 5],
    [270, 31],
    [3, 49],
    [5, 129],
    [60, 241],
  ];
  it.each([
    [1, 3],
    [40, 130],
    [33, 1024],
    [77, 2050],
  ])(
    '%i outputs of %i inputs: hundreds of rows of f32 are the same to rounding, where all products are ours to the bit',
    (outputs, inputs) => {
      seed(outputs);
      const [x, weight, bias] = [randn([301, inputs]), randn([outputs, inputs]), randn([outputs])];
      const together = linear(x, weight, bias);
      const expected = linear(x.to('float64'), weight.to('float64'), bias.to('float64'));
      expect(largest(together.to('float64').sub(expected))).toBeLessThan(1e-6 * inputs);
      const words = integers(Array.from({ length: 301 }, (_, row) => row % outputs));
      const logprobs = linearLogprob(x, weight, words).logp;
      for (const [i, [first, count]] of parts.entries()) {
        setThreads([1, 2, 3][i % 3] as number);
        const [found, all] = [linear(x.narrow(0, first, count), weight, bias), together.narrow(0, first, count)];
        if (takesAllRows(inputs)) expect(found.numbers()).toEqual(all.numbers());
        expect(largest(found.sub(all))).toBeLessThan(1e-6 * inputs);
        const { logp } = linearLogprob(x.narrow(0, first, count), weight, words.narrow(0, first, count));
        if (takesAllRows(inputs)) expect(logp.numbers()).toEqual(logprobs.narrow(0, first, count).numbers());
      }
    },
  );
});
