/** A decoding step by the native plan, in the dtypes that have kernels on the device, against the CPU's in f32. */
import { describe, expect, it } from 'vitest';
import { type DType, integers, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { device, expectSame, gap, hasCuda, onlyOnCuda } from './device.ts';
import { type PlanShape, randomPlan } from './random-plan.ts';

const shapes: PlanShape[] = [
  { rows: 16, heads: 16, groups: 8, size: 128, inner: 3072, width: 1024, half: 64, window: 0, norm: true },
  { rows: 1, heads: 14, groups: 2, size: 64, inner: 4864, width: 896, half: 32, window: 0, norm: false },
  { rows: 17, heads: 4, groups: 1, size: 96, inner: 800, width: 288, half: 24, window: 40, norm: true },
  { rows: 24, heads: 16, groups: 8, size: 128, inner: 3072, width: 1024, half: 64, window: 0, norm: true },
  { rows: 31, heads: 16, groups: 2, size: 128, inner: 3080, width: 1024, half: 64, window: 0, norm: false },
  { rows: 33, heads: 16, groups: 8, size: 128, inner: 3072, width: 1024, half: 64, window: 0, norm: true },
  { rows: 100, heads: 6, groups: 2, size: 64, inner: 352, width: 160, half: 32, window: 0, norm: true },
  { rows: 7, heads: 8, groups: 2, size: 64, inner: 416, width: 2048, half: 32, window: 0, norm: true },
  { rows: 12, heads: 4, groups: 2, size: 64, inner: 288, width: 4096, half: 32, window: 0, norm: true },
  { rows: 3, heads: 2, groups: 1, size: 32, inner: 100, width: 40, half: 16, window: 0, norm: true },
  { rows: 5, heads: 2, groups: 2, size: 256, inner: 96, width: 32, half: 128, window: 7, norm: true },
  // many columns, as larger models have them: product.cu's blocks compute different numbers of tiles
  { rows: 16, heads: 32, groups: 8, size: 128, inner: 9728, width: 256, half: 64, window: 0, norm: true },
  { rows: 11, heads: 16, groups: 8, size: 128, inner: 12288, width: 128, half: 64, window: 0, norm: true },
  { rows: 8, heads: 4, groups: 2, size: 64, inner: 6144, width: 2560, half: 32, window: 0, norm: true },
  { rows: 6, heads: 4, groups: 2, size: 64, inner: 64, width: 7168, half: 32, window: 0, norm: true },
  { rows: 33, heads: 4, groups: 2, size: 80, inner: 480, width: 320, half: 40, window: 0, norm: true },
  // as narrow_product.cu takes them: gates and up in one, two and three parts of a block
  { rows: 13, heads: 16, groups: 8, size: 128, inner: 6144, width: 2048, half: 64, window: 0, norm: true },
  { rows: 2, heads: 8, groups: 2, size: 64, inner: 1408, width: 1536, half: 32, window: 0, norm: true },
  { rows: 27, heads: 32, groups: 8, size: 128, inner: 9728, width: 2560, half: 64, window: 0, norm: true },
  { rows: 32, heads: 8, groups: 4, size: 128, inner: 2560, width: 4096, half: 64, window: 0, norm: true },
  { rows: 20, heads: 4, groups: 2, size: 64, inner: 384, width: 256, half: 32, window: 0, norm: true },
  // with few and large slots, which are used again
  { rows: 29, heads: 12, groups: 2, size: 128, inner: 8960, width: 1536, half: 64, window: 0, norm: false },
  { rows: 18, heads: 8, groups: 4, size: 128, inner: 5120, width: 1024, half: 64, window: 0, norm: true },
  { rows: 19, heads: 4, groups: 2, size: 64, inner: 384, width: 5120, half: 32, window: 0, norm: true },
];
/** Many rows of layers as models have them: with biases, and (`plain`) without any. */
const many = { heads: 16, groups: 8, size: 128, inner: 3072, width: 1024, half: 64, window: 0, norm: true };
const manyRows = [
  ...[33, 48, 64, 65, 97, 128, 129, 256, 260].map((rows) => ({ ...many, rows, plain: true })),
  ...[40, 104, 200].map((rows) => ({ ...many, rows, plain: false })),
  { ...many, rows: 100, plain: true, width: 2048, inner: 6144 },
  { ...many, rows: 47, plain: true, heads: 32, width: 2560, inner: 9728 },
  { ...many, rows: 70, plain: true, heads: 32, width: 2560, inner: 9728 },
  { ...many, rows: 70, plain: true, heads: 4, groups: 2, inner: 800, width: 320 },
  { ...many, rows: 36, plain: true, heads: 3, groups: 1, size: 64, half: 32, inner: 200, width: 136 },
];
const dtypes: DType[] = hasCuda ? ['bfloat16', 'float16'] : ['float32'];

/** With positions in so many blocks of 64: the most for which few rows have kernels of their own, several by the number of rows. */
const few = { rows: 16, inner: 96, width: 64, window: 0, norm: true, blocks: 16 };
const fewRows = [
  { ...few, heads: 16, groups: 8, size: 128, half: 64 },
  { ...few, heads: 8, groups: 8, size: 128, half: 64, window: 101 },
  { ...few, heads: 6, groups: 6, size: 64, half: 32 },
  { ...few, heads: 40, groups: 4, size: 32, half: 8 },
  { ...few, heads: 9, groups: 3, size: 96, half: 48, window: 200 },
  { ...few, heads: 8, groups: 2, size: 256, half: 128, blocks: 8 },
];

describe.each(dtypes)(`a plan on ${device} in %s`, (dtype) => {
  it.each(shapes)('of one layer: $rows rows, $heads heads of $size, $width wide', (shape) =>
    scope(() => {
      seed(3);
      const { step } = randomPlan(shape, 1);
      const here = step('cpu', 'float32');
      const there = step(device, dtype);
      for (const part of ['logits', 'keys', 'values'] as const)
        expect(gap(there[part], here[part])).toBeLessThanOrEqual(dtype === 'float16' ? 4e-3 : 2e-2);
    }),
  );

  const batches = [
    { rows: 16, counts: [1, 2, 8, 9] },
    { rows: 32, counts: [17, 25] }, // in f16 libtorch multiplies more than 16 rows
    { rows: 32, counts: [17, 25], width: 2048, inner: 6144 },
    { rows: 32, counts: [1, 8, 9, 16, 17, 25], width: 2560, inner: 1536 },
  ];
  it.each(batches.filter(({ rows }) => rows <= 16 || dtype !== 'float16'))(
    'of two layers: a row’s last keys and values are the same to the bit, whatever the rows beside it: $rows',
    ({ counts, ...given }) =>
      scope(() => {
        seed(4);
        const { step, places } = randomPlan({ ...(shapes[0] as PlanShape), ...given }, 2);
        const all = step(device, dtype);
        for (const count of counts) {
          const few = step(device, dtype, count);
          const at = integers(places.slice(0, count), { device });
          const written = (cache: Tensor) => cache.flatten(0, 1).indexSelect(0, at);
          for (const part of ['keys', 'values'] as const)
            expectSame(written(few[part]), written(all[part]), `${part} of ${count} rows`);
        }
      }),
  );

  it.each(shapes.slice(0, 3))('gives the same to the bit with room for longer rows: $rows rows', (shape) =>
    scope(() => {
      seed(5);
      const { step } = randomPlan(shape, 2);
      const logits = (room: number) => step(device, dtype, shape.rows, room).logits;
      expectSame(logits(40), logits(5));
    }),
  );

  it.each(fewRows)('gives few long rows the bits of many: $heads heads of $size, window $window', (shape) =>
    scope(() => {
      seed(6);
      const { step } = randomPlan(shape, 1, shape.blocks);
      const here = step('cpu', 'float32');
      for (const count of [1, 2, 4, 5, 8, 9, 15, 16]) {
        const logits = (room: number) => step(device, dtype, count, room).logits;
        const found = logits(shape.blocks);
        expectSame(found, logits(40), `${count} rows`);
        expect(gap(found, here.logits.narrow(0, 0, count))).toBeLessThanOrEqual(2e-2);
      }
    }),
  );
});

onlyOnCuda('a step of many rows by the plan', () => {
  it.each(manyRows)(
    'is that of a few at a time: $rows rows, $heads heads, $width wide, without biases $plain',
    (shape) =>
      scope(() => {
        seed(7);
        const { logits, free } = randomPlan(shape, shape.width > 1024 ? 1 : 2).made(device, 'bfloat16', 5);
        const together = logits(0, shape.rows);
        expect(together.isfinite().all().item()).toBe(1);
        for (let from = 0; from < shape.rows; from += 16) {
          const count = Math.min(16, shape.rows - from);
          expect(gap(together.narrow(0, from, count), logits(from, count))).toBeLessThanOrEqual(2e-2);
        }
        expect(logits(0, shape.rows).eq(together).all().item()).toBe(1);
        free();
      }),
  );
});
