/**
 * Attention of one new token per row, for rows of many lengths: the kernels cut a row's keys into chunks and deal them to
 * blocks. A row's result is right at every edge of a chunk, and its bits do not depend on the rows beside it.
 */
import { describe, expect, it } from 'vitest';
import { aten, type DType, Graph, integers, randn, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { scatteredTables } from './blocks.ts';
import { device, gap, hasCuda, onlyOnCuda } from './device.ts';

const dtypes: DType[] = hasCuda ? ['float32', 'bfloat16', 'float16'] : ['float32'];
const BLOCK = 64;

interface Shape {
  heads: number;
  groups: number;
  size: number;
  window: number;
  positions: number[];
}
/** Chunks have 512 keys, 256 at size 256; twice as many from 8,192 keys on. Tiles have 16; a window moves the edges. */
const edges = [0, 1, 15, 16, 63, 64, 65, 255, 256, 257, 511, 512, 513, 767, 768, 1030];
const shapes: Shape[] = [
  { heads: 4, groups: 2, size: 128, window: 0, positions: edges },
  { heads: 14, groups: 2, size: 64, window: 0, positions: edges },
  { heads: 2, groups: 1, size: 128, window: 0, positions: [4095, 4096, 4200, 17, 2048] },
  { heads: 3, groups: 1, size: 64, window: 0, positions: [8191, 8192, 8300, 3] },
  { heads: 4, groups: 1, size: 96, window: 300, positions: [0, 298, 299, 300, 315, 316, 612, 900] },
  { heads: 12, groups: 1, size: 256, window: 0, positions: [0, 256, 300] },
];

/** Inputs on the CPU, of numbers that bf16 holds; rows can be taken out of them. */
function inputsOf({ heads, groups, size, positions }: Shape) {
  seed(11);
  const rows = positions.length;
  const width = Math.ceil((Math.max(...positions) + 1) / BLOCK);
  const cache = () => randn([rows * width, BLOCK, groups, size]).to('bfloat16');
  return {
    projected: randn([rows, (heads + 2 * groups) * size]).to('bfloat16'),
    angles: randn([rows, size / 2]),
    keys: cache(),
    values: cache(),
    tables: scatteredTables(rows, width),
    slots: positions.map((_, i) => (i * 3 + 1) % rows).map((slot, i) => (rows % 3 === 0 ? i : slot)),
  };
}

/** The attention of some rows, in this order; caches are copies. */
function attend(
  shape: Shape,
  inputs: ReturnType<typeof inputsOf>,
  which: number[],
  place: string,
  dtype: DType,
): Tensor {
  const put = (value: Tensor) => value.to({ device: place, dtype, copy: true });
  const taken = integers(which);
  const angles = inputs.angles.indexSelect(0, taken).to(place);
  return aten(
    'attune::decode_fused',
    put(inputs.projected.indexSelect(0, taken)),
    ...[null, null, 1e-6, angles.cos(), angles.sin(), false],
    ...[put(inputs.keys), put(inputs.values), inputs.tables.to(place)],
    integers(which.map((i) => inputs.slots[i] as number)).to(place),
    integers(which.map((i) => shape.positions[i] as number)).to(place),
    ...[shape.heads, 1 / Math.sqrt(shape.size), shape.window],
  );
}

const bitsOf = (value: Tensor): Float32Array => value.to({ device: 'cpu', dtype: 'float32' }).data() as Float32Array;

describe.each(dtypes)(`decode_fused of many lengths on ${device} in %s`, (dtype) => {
  describe.each(shapes)('$heads heads of $size, window $window', (shape) => {
    const all = shape.positions.map((_, i) => i);

    it('is right at the edges of chunks', () =>
      scope(() => {
        const inputs = inputsOf(shape);
        const here = attend(shape, inputs, all, 'cpu', 'float32');
        const there = attend(shape, inputs, all, device, dtype);
        for (const i of all)
          expect(gap(there.select(0, i), here.select(0, i))).toBeLessThanOrEqual(dtype === 'float32' ? 1e-4 : 2e-2);
      }));

    it("gives a row's bits whatever rows are beside it", () =>
      scope(() => {
        const inputs = inputsOf(shape);
        const together = attend(shape, inputs, all, device, dtype);
        const turned = attend(shape, inputs, [...all].reverse(), device, dtype);
        const again = attend(shape, inputs, all, device, dtype);
        expect(bitsOf(again)).toEqual(bitsOf(together));
        for (const i of all) {
          const bits = bitsOf(together.select(0, i));
          expect(bitsOf(attend(shape, inputs, [i], device, dtype).select(0, 0))).toEqual(bits);
          expect(bitsOf(turned.select(0, all.length - 1 - i))).toEqual(bits);
        }
      }));
  });

  it('takes more rows than one launch does', () =>
    scope(() => {
      const positions = Array.from({ length: 1030 }, (_, i) => (i * 7) % 65);
      const shape = { heads: 2, groups: 1, size: 32, window: 0, positions };
      const inputs = inputsOf(shape);
      const all = positions.map((_, i) => i);
      const there = attend(shape, inputs, all, device, dtype);
      expect(gap(there, attend(shape, inputs, all, 'cpu', 'float32'))).toBeLessThanOrEqual(
        dtype === 'float32' ? 1e-4 : 2e-2,
      );
      const few = [0, 1023, 1024, 1029];
      const alone = attend(shape, inputs, few, device, dtype);
      for (const [i, row] of few.entries()) expect(bitsOf(alone.select(0, i))).toEqual(bitsOf(there.select(0, row)));
    }));

  it('takes more items than blocks, and idle rows among them', () =>
    scope(() => {
      const positions = Array.from({ length: 200 }, (_, i) => (i % 5 === 0 ? 0 : (i * 37) % 601));
      const shape = { heads: 4, groups: 4, size: 32, window: 0, positions };
      const inputs = inputsOf(shape);
      const all = positions.map((_, i) => i);
      const there = attend(shape, inputs, all, device, dtype);
      expect(gap(there, attend(shape, inputs, all, 'cpu', 'float32'))).toBeLessThanOrEqual(
        dtype === 'float32' ? 1e-4 : 2e-2,
      );
      expect(bitsOf(attend(shape, inputs, all, device, dtype))).toEqual(bitsOf(there));
      const few = [0, 13, 129, 199];
      const alone = attend(shape, inputs, few, device, dtype);
      for (const [i, row] of few.entries()) expect(bitsOf(alone.select(0, i))).toEqual(bitsOf(there.select(0, row)));
    }));

  it('adds a bias to every chunk', () =>
    scope(() => {
      seed(12);
      const [rows, heads, size, width] = [6, 4, 64, 18];
      const [q, k, v] = [randn([rows, heads, size]), randn([rows, 2, size]), randn([rows, 2, size])];
      const caches = [randn([rows * width, BLOCK, 2, size]), randn([rows * width, BLOCK, 2, size])];
      const [tables, bias] = [scatteredTables(rows, width), randn([heads, width * BLOCK])];
      const on = (place: string, type: DType) => {
        const put = (value: Tensor) => value.to('bfloat16').to({ device: place, dtype: type, copy: true });
        const places = [tables, integers([5, 4, 3, 2, 1, 0]), integers([0, 511, 512, 1023, 1024, 1100])];
        const inputs = [q, k, v, ...caches].map(put);
        return aten(
          'attune::decode_attention',
          ...inputs,
          ...places.map((one) => one.to(place)),
          0.125,
          0,
          bias.to(place),
        );
      };
      expect(gap(on(device, dtype), on('cpu', 'float32'))).toBeLessThanOrEqual(dtype === 'float32' ? 1e-4 : 2e-2);
    }));
});

onlyOnCuda('a captured attention whose positions grow', () => {
  it.each(['bfloat16', 'float16'] as const)('gives what one without a graph does in %s', (dtype) =>
    scope(() => {
      seed(13);
      const [heads, groups, size, rows, width] = [4, 2, 128, 5, 12];
      const put = (value: Tensor) => value.to({ device, dtype });
      const projected = put(randn([rows, (heads + 2 * groups) * size]));
      const caches = [put(randn([rows * width, BLOCK, groups, size])), put(randn([rows * width, BLOCK, groups, size]))];
      const tables = scatteredTables(rows, width).to(device);
      const slots = integers([4, 2, 0, 1, 3]).to(device);
      const positions = integers([0, 100, 250, 254, 600]).to(device);
      const step = () =>
        aten(
          'attune::decode_fused',
          ...[projected, null, null, 1e-6, null, null, false, ...caches, tables, slots, positions, heads, 0.1, 0],
        );
      const result = put(randn([rows, heads, size]));
      const graph = Graph.capture(() =>
        scope(() => {
          result.copy_(step());
        }),
      );
      for (let i = 0; i < 20; i++) {
        graph.replay();
        expect(bitsOf(result)).toEqual(bitsOf(step()));
        positions.add_(1);
      }
      graph.dispose();
    }),
  );
});
