/** Attention of one new token per row over the cache, with its norms and turns: the device against the CPU in f32. */
import { describe, expect, it } from 'vitest';
import { aten, type DType, integers, randn, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { scatteredTables } from './blocks.ts';
import { device, gap, hasCuda } from './device.ts';

const shapes = [
  { rows: 16, heads: 16, groups: 8, size: 128, half: 64, window: 0, norm: true },
  { rows: 1, heads: 14, groups: 2, size: 64, half: 32, window: 0, norm: false },
  { rows: 17, heads: 4, groups: 1, size: 96, half: 24, window: 40, norm: true },
  { rows: 32, heads: 8, groups: 8, size: 32, half: 16, window: 0, norm: false },
  { rows: 5, heads: 2, groups: 2, size: 256, half: 128, window: 7, norm: true },
];
const dtypes: DType[] = hasCuda ? ['float32', 'bfloat16', 'float16'] : ['float32'];

describe.each(dtypes)(`decode_fused on ${device} in %s`, (dtype) => {
  it.each(shapes)('$rows rows, $heads heads of $size', ({ rows, heads, groups, size, half, window, norm }) =>
    scope(() => {
      seed(3);
      const length = 300;
      const indices = Array.from({ length: rows }, (_, i) => i);
      const slots = integers(indices.map((i) => rows - 1 - i));
      const positions = integers(indices.map((i) => (i * 67 + 41) % length));
      const angles = randn([length, half]).indexSelect(0, positions);
      const projected = randn([rows, (heads + 2 * groups) * size]);
      const norms = [size, size].map((count) => randn([count]).mul(0.1).add(1));
      const tables = scatteredTables(rows, 5); // of blocks of 64
      const caches = [randn([rows * 5, 64, groups, size]), randn([rows * 5, 64, groups, size])];
      const on = (place: string, type: DType) => {
        // the same numbers on both sides: those that bf16 holds
        const put = (value: Tensor) => value.to('bfloat16').to({ device: place, dtype: type, copy: true });
        const [ofQ, ofK] = norms.map((value) => (norm ? put(value) : null));
        const [keys, values] = caches.map(put) as [Tensor, Tensor];
        const turn = [angles.cos().to(place), angles.sin().to(place), false];
        const places = [tables.to(place), slots.to(place), positions.to(place), heads];
        const rest = [keys, values, ...places, 1 / Math.sqrt(size), window];
        return { out: aten('attune::decode_fused', put(projected), ofQ, ofK, 1e-6, ...turn, ...rest), keys, values };
      };
      const here = on('cpu', 'float32');
      const there = on(device, dtype);
      const bound = dtype === 'float32' ? 1e-4 : 2e-2;
      expect(gap(there.out, here.out)).toBeLessThanOrEqual(bound);
      // the new token's keys and values are in the cache
      expect(gap(there.keys, here.keys)).toBeLessThanOrEqual(bound);
      expect(gap(there.values, here.values)).toBeLessThanOrEqual(bound);
    }),
  );
});

/** Tokens of prompts: those of a slot are neighbours and follow one another; the last rows are a graph's idle ones. */
const prompts = [
  { heads: 16, groups: 8, size: 128, half: 64, window: 0, norm: true },
  { heads: 8, groups: 2, size: 64, half: 32, window: 0, norm: false },
  { heads: 14, groups: 2, size: 64, half: 16, window: 0, norm: false },
  { heads: 4, groups: 4, size: 128, half: 64, window: 40, norm: true },
  { heads: 2, groups: 2, size: 32, half: 16, window: 0, norm: true },
];
const runs = [
  { slot: 2, from: 500, count: 41 },
  { slot: 0, from: 0, count: 3 },
  { slot: 1, from: 130, count: 9 },
  { slot: 3, from: 0, count: 1 },
  { slot: 3, from: 0, count: 1 },
];

describe.each(dtypes)(`prompt_fused on ${device} in %s`, (dtype) => {
  it.each(prompts)('$heads heads of $size, window $window', ({ heads, groups, size, half, window, norm }) =>
    scope(() => {
      seed(4);
      const length = 600;
      const tokens = runs.flatMap(({ slot, from, count }) =>
        Array.from({ length: count }, (_, i) => ({ slot, position: from + i })),
      );
      const slots = integers(tokens.map(({ slot }) => slot));
      const positions = integers(tokens.map(({ position }) => position));
      const angles = randn([length, half]).indexSelect(0, positions);
      const projected = randn([tokens.length, (heads + 2 * groups) * size]);
      const norms = [size, size].map((count) => randn([count]).mul(0.1).add(1));
      const tables = scatteredTables(4, 10);
      const caches = [randn([40, 64, groups, size]), randn([40, 64, groups, size])];
      const on = (place: string, type: DType) => {
        const put = (value: Tensor) => value.to('bfloat16').to({ device: place, dtype: type, copy: true });
        const [ofQ, ofK] = norms.map((value) => (norm ? put(value) : null));
        const [keys, values] = caches.map(put) as [Tensor, Tensor];
        const turn = [angles.cos().to(place), angles.sin().to(place), false];
        const places = [tables.to(place), slots.to(place), positions.to(place), heads];
        const rest = [keys, values, ...places, 1 / Math.sqrt(size), window];
        return { out: aten('attune::prompt_fused', put(projected), ofQ, ofK, 1e-6, ...turn, ...rest), keys };
      };
      const [here, there] = [on('cpu', 'float32'), on(device, dtype)];
      const bound = dtype === 'float32' ? 1e-4 : 2e-2;
      const real = integers(tokens.slice(0, -2).map((_, i) => i)); // idle rows write the same place, in any order
      const rowsOf = (out: Tensor) => out.to({ device: 'cpu', dtype: 'float32' }).indexSelect(0, real);
      expect(gap(rowsOf(there.out), rowsOf(here.out))).toBeLessThanOrEqual(bound);
      const written = tables.narrow(0, 0, 3).flatten().to('int64'); // all but the idle rows' blocks
      const keysOf = (keys: Tensor) => keys.to({ device: 'cpu', dtype: 'float32' }).indexSelect(0, written);
      expect(gap(keysOf(there.keys), keysOf(here.keys))).toBeLessThanOrEqual(bound);
    }),
  );
});
