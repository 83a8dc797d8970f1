/** Attention of packed training batches on the device against the general operator on the CPU: values and gradients. */
import { describe, expect, it } from 'vitest';
import { longestFirst } from '../../src/models/decoder/batch.ts';
import { aten, type DType, randn, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { device, gap, gapOfFunction, hasCuda, precisions } from './device.ts';

// The CPU's own f16 arithmetic is not complete in libtorch 1.13.
const all: readonly [DType, number][] = hasCuda ? [...precisions, ['float16', 6e-3]] : precisions;
const odd = [1, 2, 15, 63, 64, 65, 200, 333, 31];
const many = Array.from({ length: 70 }, (_, i) => 1 + ((i * 37) % 50));

function startsOf(lengths: readonly number[]): number[] {
  const starts = [0];
  for (const length of lengths) starts.push((starts.at(-1) as number) + length);
  return starts;
}

/** Random numbers that the dtype holds exactly, so that only the arithmetic differs. */
const held = (shape: number[], dtype: DType) => randn(shape).to(dtype).to('float32');

describe.each(all)(`causal attention on ${device} in %s`, (dtype, bound) => {
  // The general operator, which stands in without a GPU, rounds products before it adds them up.
  const limit = hasCuda ? bound : 2 * bound;
  /** The result counts with random weights, so that gradients are sums that do not cancel. */
  const holds = (inputs: Tensor[], attend: (q: Tensor, k: Tensor, v: Tensor) => Tensor) => {
    const weights = held([...(inputs[0] as Tensor).shape], dtype);
    const weighted = (q: Tensor, k: Tensor, v: Tensor) =>
      attend(q, k, v).mul(weights.to({ device: q.device, dtype: q.dtype }));
    expect(gapOfFunction(inputs, weighted as (...given: Tensor[]) => Tensor, dtype)).toBeLessThanOrEqual(limit);
  };

  it.each([
    { heads: 4, groups: 2, size: 128, lengths: odd },
    { heads: 2, groups: 2, size: 128, lengths: odd },
    { heads: 4, groups: 1, size: 128, lengths: odd },
    { heads: 7, groups: 1, size: 64, lengths: odd },
    { heads: 4, groups: 2, size: 64, lengths: many },
    { heads: 4, groups: 2, size: 80, lengths: [3, 70] },
  ])('$heads query and $groups kv heads of $size, sequences of $lengths', ({ heads, groups, size, lengths }) =>
    scope(() => {
      seed(1);
      const starts = startsOf(lengths);
      const tokens = starts.at(-1) as number;
      // v is a view of a wider projection, as split_heads gives it
      const inputs = [heads, groups, 2 * groups].map((count) => held([tokens, count, size], dtype));
      const attend = (q: Tensor, k: Tensor, wide: Tensor) => {
        const v = wide.narrow(1, groups, groups);
        if (q.device === 'cpu' && q.dtype === 'float32')
          return aten<Tensor>('attune::packed_attention', q, k, v, starts, size ** -0.5);
        return aten<Tensor>('attune::causal_attention', q, k, v, longestFirst(starts, q.device), size ** -0.5);
      };
      holds(inputs, attend);
    }),
  );

  it('has the same bits every time', () =>
    scope(() => {
      seed(2);
      const starts = startsOf(odd);
      const tokens = starts.at(-1) as number;
      const inputs = [
        randn([tokens, 8, 128]),
        randn([tokens, 4, 128]),
        randn([tokens, 4, 128]),
        randn([tokens, 8, 128]),
      ];
      const [q, k, v, weights] = inputs.map((input) => input.to({ device, dtype })) as [Tensor, Tensor, Tensor, Tensor];
      const run = () => {
        const leaves = [q, k, v].map((input) => input.clone().requiresGrad_());
        const out = aten<Tensor>('attune::causal_attention', ...leaves, longestFirst(starts, device), 0.1);
        out.mul(weights).sum().backward();
        return [out, ...leaves.map((leaf) => leaf.grad as Tensor)];
      };
      const [first, second] = [run(), run()];
      for (const [i, value] of first.entries()) expect(gap(value, second[i] as Tensor)).toBe(0);
    }));

  it('takes long sequences', () =>
    scope(() => {
      seed(3);
      const starts = [0, 1500, 1501];
      const inputs = [2, 1, 1].map((count) => held([1501, count, 128], dtype));
      const attend = (q: Tensor, k: Tensor, v: Tensor) =>
        q.device === 'cpu' && q.dtype === 'float32'
          ? aten<Tensor>('attune::packed_attention', q, k, v, starts, 0.1)
          : aten<Tensor>('attune::causal_attention', q, k, v, longestFirst(starts, q.device), 0.1);
      holds(inputs, attend);
    }));
});

it('refuses what does not fit', () => {
  const x = randn([6, 2, 8]);
  const call = (q: Tensor, sequences: Tensor) => aten('attune::causal_attention', q, x, x, sequences, 1);
  expect(() => call(x, randn([1, 2]))).toThrow(/sequences int32/);
  expect(() => call(randn([6, 3, 8]), longestFirst([0, 6], 'cpu'))).toThrow(/multiple of kv heads/);
  expect(() => call(x, longestFirst([0, 5], 'cpu'))).toThrow(/all tokens/);
});
