import { expect, it } from 'vitest';
import { keep, randn, scope, type Tensor, zeros } from '../tensor/index.ts';
import { bucketsOf, flattened, setGradients } from './buckets.ts';

const parameter = (shape: number[]) => keep(zeros(shape)).requiresGrad_();

it('makes a bucket per block, one of what is in none, and one of a large embedding, whose gradient is sent as it is', () => {
  const embedding = parameter([1 << 14, 64]);
  const named: [string, Tensor][] = [
    ['embed.weight', embedding],
    ['model.layers.0.up.weight', parameter([3, 2])],
    ['model.layers.0.norm.weight', parameter([3])],
    ['model.layers.1.up.weight', parameter([4, 2])],
    ['norm.weight', parameter([5])],
    ['score.bias', parameter([1])],
  ];
  const buckets = bucketsOf(named, 2);
  expect(buckets.map(({ slices, length, block }) => [slices.map(({ name }) => name), length, block])).toEqual([
    [['embed.weight'], 1 << 20, null],
    [['model.layers.0.up.weight', 'model.layers.0.norm.weight'], 10, 0],
    [['model.layers.1.up.weight'], 8, 1],
    [['norm.weight', 'score.bias'], 6, null],
  ]);
  scope(() => {
    embedding.grad = randn([1 << 14, 64]);
    const before = (embedding.grad as Tensor).sum().item();
    const flat = flattened(buckets[0] as (typeof buckets)[number]);
    flat.mul_(2);
    // Not a copy: the gradient has doubled with it.
    expect((embedding.grad as Tensor).sum().item()).toBe(2 * before);
    embedding.grad = null;
    setGradients(buckets[0] as (typeof buckets)[number], flat, () => true);
    expect((embedding.grad as Tensor | null)?.shape).toEqual([1 << 14, 64]);
    flat.dispose();
  });
  // Cut in three, it is not a whole number of elements per rank, so it is padded together with the others.
  expect(bucketsOf(named, 3).map(({ slices, length }) => [slices.length, length])).toEqual([
    [3, (1 << 20) + 6 + 2],
    [2, 9],
    [1, 9],
  ]);
});
