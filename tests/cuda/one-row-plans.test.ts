/**
 * Steps of one row of models 1,024 wide, whatever of a layer the kernels of one row take (native/cuda/solo/): with and without norms of heads,
 * biases and windows, from the first position on, and layers that they take between others that they do not. Against the CPU in f32.
 */
import { describe, expect, it } from 'vitest';
import { type DType, integers, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { device, gap, hasCuda } from './device.ts';
import { type PlanShape, randomPlan } from './random-plan.ts';

const dtype: DType = 'bfloat16';
const POSITIONS = [0, 1, 31, 32, 300];
const base = { rows: 5, heads: 16, groups: 8, size: 128, half: 64, inner: 520, width: 1024, window: 0, norm: true };
const small = { ...base, heads: 4, groups: 2, size: 64, half: 32, inner: 96, width: 128 };
interface Case extends PlanShape {
  name: string;
  layers: number;
  blocks?: number;
}

/** 520 is no multiple of what a block of gates and up has; 3,200 is more than all blocks have. */
const onCuda: Case[] = [
  { name: 'with a bias of gates and up', ...base, layers: 2, inner: 3072 },
  { name: 'of up to 1,024 keys', ...base, layers: 1, blocks: 16, positions: [0, 511, 512, 1022, 1023] },
  { name: 'without biases and norms', ...base, layers: 2, plain: true, norm: false },
  { name: 'with a window', ...base, layers: 2, window: 100 },
  { name: 'with a window of less than a tile', ...base, layers: 2, window: 5 },
  { name: 'with a bias of the second output projection', ...base, layers: 3, outBias: [1] },
  { name: 'with more gates in the second layer', ...base, layers: 3, inner: [520, 3200, 520] },
  { name: 'with more gates in the first layer', ...base, layers: 2, inner: [3200, 520] },
  { name: 'with four kv heads', ...base, layers: 2, heads: 8, groups: 4 },
  { name: 'with one kv head', ...base, layers: 2, heads: 2, groups: 1 },
  { name: 'with four query heads a kv head', ...base, layers: 2, groups: 4 },
  { name: 'whose angles are of half a head', ...base, layers: 2, half: 32 },
];
const onCpu: Case[] = [
  { name: 'with biases and a window', ...small, layers: 2, window: 100 },
  { name: 'with layers of different sizes', ...small, layers: 3, inner: [96, 200, 96], outBias: [1] },
];

describe(`steps of one row by a plan on ${device}`, () => {
  it.each(hasCuda ? onCuda : onCpu)('$name', ({ name: _, layers, blocks = 5, ...shape }) =>
    scope(() => {
      seed(8);
      const positions = shape.positions ?? POSITIONS;
      const { made, places } = randomPlan({ outBias: [], ...shape, positions }, layers, blocks);
      const [here, there] = [made('cpu', 'float32', blocks), made(device, dtype, blocks)];
      const expected = here.logits(0, shape.rows);
      for (const [row, position] of positions.entries()) {
        const found = there.logits(row, 1);
        expect(gap(found, expected.narrow(0, row, 1)), `position ${position}`).toBeLessThanOrEqual(3e-2);
        for (let again = 0; again < 3; again++) expect(there.logits(row, 1).eq(found).all().item()).toBe(1);
      }
      const written = (cache: Tensor) => cache.flatten(0, 1).indexSelect(0, integers(places, { device: cache.device }));
      for (const part of ['keys', 'values'] as const)
        expect(gap(written(there[part]), written(here[part])), part).toBeLessThanOrEqual(3e-2);
      here.free();
      there.free();
    }),
  );
});
