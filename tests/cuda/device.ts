/**
 * The tests of this folder hold the GPU against the CPU. Without a GPU they run all the same, the CPU in half precision
 * against the CPU in float32, so that a check cannot rot unseen; what only CUDA has (graphs, streams) is `onlyOnCuda`.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/tensor/engine/native.ts';
import { aten, cudaCount, type DType, scope, type Tensor, tensor } from '../../src/tensor/index.ts';

export const hasCuda = cudaCount() > 0;
/** The device under test. */
export const device = hasCuda ? 'cuda:0' : 'cpu';

/** A suite that needs CUDA. Where there is none, one test says so in the report. */
export function onlyOnCuda(name: string, body: () => void): void {
  if (hasCuda) describe(name, body);
  else
    describe(`${name} (left out: there is no CUDA device here)`, () =>
      it('needs a machine with a GPU', () => expect(cudaCount()).toBe(0)));
}

/** float32 numbers agree to rounding; half precision to what it holds. */
export const precisions: readonly [dtype: DType, bound: number][] = [
  ['float32', 1e-4],
  ['bfloat16', 4e-2],
];

/** The largest |a − b| relative to the largest |b|, both read back in f32. */
export function gap(a: Tensor, b: Tensor): number {
  const [x, y] = [a, b].map((value) => value.detach().to({ dtype: 'float32', device: 'cpu' })) as [Tensor, Tensor];
  expect(x.shape).toEqual(y.shape);
  return x.sub(y).abs().max().item() / Math.max(1e-30, y.abs().max().item());
}

const wholeOf: Partial<Record<DType, DType>> = {
  float64: 'int64',
  float32: 'int32',
  bfloat16: 'int16',
  float16: 'int16',
};

/** Two tensors hold the same numbers: 0 is not −0, NaN is NaN. Compared natively, for `toEqual` takes a second for a million of them. */
export function expectSame(found: Tensor, expected: Tensor, what = 'numbers'): void {
  expect([found.dtype, ...found.shape], what).toEqual([expected.dtype, ...expected.shape]);
  scope(() => {
    const [x, y] = [found, expected].map((each) => each.detach().to('cpu').contiguous()) as [Tensor, Tensor];
    const bits = (each: Tensor) => aten<Tensor>('view.dtype', each, wholeOf[each.dtype] ?? each.dtype);
    const areNaN = x.ne(x).logicalAnd(y.ne(y));
    const differ = bits(x).ne(bits(y)).logicalAnd(areNaN.logicalNot()).flatten();
    const count = differ.sum().item();
    if (count === 0) return;
    const first = differ.to('int32').argmax().item();
    const [one, other] = [x, y].map((each) => each.flatten().select(0, first).item());
    expect.fail(`${what}: ${count} of ${x.numel} differ, first number ${first}: ${one}, and ${other} is expected`);
  });
}

/** The largest gap of a function's value and gradients, on the device in `dtype` against the CPU in float32. */
export function gapOfFunction(inputs: Tensor[], fn: (...inputs: Tensor[]) => Tensor, dtype: DType): number {
  const at = (place: string, type: DType) => {
    const leaves = inputs.map((input) => input.to({ device: place, dtype: type, copy: true }).requiresGrad_());
    const out = fn(...leaves);
    const weights = tensor(
      Float32Array.from({ length: out.numel }, (_, i) => Math.cos(i)),
      { shape: [...out.shape] },
    );
    out
      .mul(weights.to({ device: place, dtype: out.dtype }))
      .sum()
      .backward();
    return [out, ...leaves.map((leaf) => leaf.grad as Tensor)];
  };
  const here = at('cpu', 'float32');
  const there = at(device, dtype);
  return Math.max(...there.map((value, i) => gap(value, here[i] as Tensor)));
}

const fixtures = join(packageRoot, 'tests/models/fixtures');

/** The small models of tests/models: all of them on CUDA; two elsewhere, where tests/models itself holds them all. */
export function modelFixtures(): [name: string, path: string][] {
  const names = existsSync(fixtures) ? readdirSync(fixtures).sort() : [];
  const few = names.filter((name) => /^(qwen3|gpt2)$/.test(name));
  return (hasCuda ? names : few).map((name) => [name, join(fixtures, name)]);
}
