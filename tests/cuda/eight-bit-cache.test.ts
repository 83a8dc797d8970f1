/** The operators over a cache in 8 bits: the device's kernels against the CPU over the same codes. */
import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { aten, type DType, integers, randn, scope, seed, type Tensor, zeros } from '../../src/tensor/index.ts';
import { scatteredTables } from './blocks.ts';
import { type Codes, dtypes, mapped, names, numbersOf, randomCodes } from './codes.ts';
import { device, expectSame, gap } from './device.ts';

const boundOf = (dtype: DType) => (dtype === 'float32' ? 1e-4 : 3e-2);

describe.each(dtypes)(`cache_write_ on ${device} in %s`, (dtype) => {
  it.each([32, 40, 48, 64, 80, 96, 128, 256])('heads of %d: the codes and scales of the CPU', (size) =>
    scope(() => {
      seed(1);
      const [groups, tokens] = [3, 150];
      const targets = integers(Array.from({ length: tokens }, (_, i) => (i * 37 + 5) % 320));
      // v as a part of a projection: its rows lie apart
      const both = randn([tokens, 2, groups, size]).to('bfloat16').to(dtype);
      both.select(0, 3).zero_();
      both.select(0, 9).narrow(-1, 7, 1).mul_(1000);
      both.select(0, 11).narrow(-1, 0, 1).fill_(Number.NaN);
      const on = (place: string) => {
        const codes = mapped(randomCodes(5, groups, size), (each) => each.to({ device: place, copy: true }));
        for (const name of names) codes[name].zero_();
        const given = both.to({ device: place, copy: true });
        const [k, v] = [given.select(1, 0).contiguous(), given.select(1, 1)];
        aten('attune::cache_write_', ...names.map((name) => codes[name]), targets.to(place), k, v);
        return mapped(codes, (each) => each.to('cpu'));
      };
      const [here, there] = [on('cpu'), on(device)];
      for (const name of names) expectSame(there[name], here[name], name);
    }),
  );

  it.each([5, 40, 128])('heads of %d without scales: the rows as they are', (size) =>
    scope(() => {
      seed(2);
      const [groups, tokens] = [3, 70];
      const targets = Array.from({ length: tokens }, (_, i) => (i * 37 + 5) % 128);
      const both = randn([tokens, 2, groups, size]).to({ device, dtype });
      const [k, v] = [both.select(1, 0).contiguous(), both.select(1, 1)];
      const [keys, values] = [0, 0].map(() => zeros([2, 64, groups, size], { device, dtype })) as [Tensor, Tensor];
      aten('attune::cache_write_', keys, values, null, null, integers(targets).to(device), k, v);
      const written = integers(targets).to(device);
      for (const [cache, rows] of [
        [keys, k],
        [values, v],
      ] as const) {
        expectSame(cache.flatten(0, 1).indexSelect(0, written), rows);
        expect(cache.to('float32').abs().gt(0).sum().item()).toBe(rows.to('float32').abs().gt(0).sum().item());
      }
    }),
  );
});

describe(`cache_write_ on ${device}`, () => {
  it('takes a cache that begins between two multiples of 16 bytes', () =>
    scope(() => {
      seed(3);
      const shape = [2, 64, 3, 40];
      const count = shape.reduce((a, b) => a * b);
      const targets = [100, 3, 64];
      const [k, v] = [0, 1].map(() => randn([targets.length, 3, 40]).to({ device, dtype: 'bfloat16' })) as [
        Tensor,
        Tensor,
      ];
      const empty = () =>
        zeros([count + 1], { device, dtype: 'bfloat16' })
          .narrow(0, 1, count)
          .view(...shape);
      const [keys, values] = [empty(), empty()];
      aten('attune::cache_write_', keys, values, null, null, integers(targets).to(device), k, v);
      const written = integers(targets).to(device);
      expectSame(keys.flatten(0, 1).indexSelect(0, written), k);
      expectSame(values.flatten(0, 1).indexSelect(0, written), v);
    }));

  // In a process of its own: after such an error CUDA takes nothing more.
  it.each([
    ['a plain cache', 128, 'null, null'],
    ['a plain cache', -1, 'null, null'],
    [
      '8 bits',
      128,
      'zeros([2, 3, 64], { device, dtype: "bfloat16" }), zeros([2, 3, 64], { device, dtype: "bfloat16" })',
    ],
  ])('refuses a target outside of the cache: %s, %i', (_, target, scales) => {
    const library = import.meta.url.replace(/tests\/cuda\/[^/]*\.(\w+)$/, 'src/tensor/index.$1');
    const cache = `zeros([2, 64, 3, 64], { device, dtype: '${scales === 'null, null' ? 'float32' : 'int8'}' })`;
    const program = `
      import { aten, integers, zeros } from '${library}';
      const device = '${device}';
      const [k, keys, values] = [zeros([1, 3, 64], { device }), ${cache}, ${cache}];
      aten('attune::cache_write_', keys, values, ${scales}, integers([${target}]).to(device), k, k);
      keys.numbers();
      console.log('written');`;
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
    expect(run.stdout).not.toContain('written');
    expect(run.stderr).toMatch(/outside the cache|out of range|out of bounds|assert/);
  });
});

interface FusedInputs {
  projected: Tensor;
  /** Of the norms of queries and keys. */
  weights: readonly Tensor[] | null;
  angles: Tensor;
  tables: Tensor;
  slots: Tensor;
  positions: Tensor;
  heads: number;
  window: number;
  codes: Codes;
}

interface Heads {
  heads: number;
  groups: number;
  size: number;
  half: number;
  window: number;
  norm: boolean;
}

/** Where tokens go: slots and positions below `length`, in tables of so many rows with so many blocks each. */
interface Places {
  slots: Tensor;
  positions: Tensor;
  length: number;
  rows: number;
  blocks: number;
}

function drawnInputs({ heads, groups, size, half, window, norm }: Heads, places: Places): FusedInputs {
  const { slots, positions, length, rows, blocks } = places;
  const angles = randn([length, half]).indexSelect(0, positions);
  const projected = randn([slots.numel, (heads + 2 * groups) * size]);
  const weights = [size, size].map((count) => randn([count]).mul(0.1).add(1));
  const tables = scatteredTables(rows, blocks);
  const codes = randomCodes(rows * blocks, groups, size);
  return { projected, weights: norm ? weights : null, angles, tables, slots, positions, heads, window, codes };
}

/** The operator's result on a device, and the codes as it leaves them there. */
function fusedOver(operator: string, given: FusedInputs, place: string, type: DType): Codes & { out: Tensor } {
  const { projected, weights, angles, tables, slots, positions, heads, window, codes } = given;
  const put = (value: Tensor) => value.to('bfloat16').to({ device: place, dtype: type, copy: true });
  const [ofQ = null, ofK = null] = weights?.map(put) ?? [];
  const own = mapped(codes, (each) => each.to({ device: place, copy: true }));
  const turn = [angles.cos().to(place), angles.sin().to(place), false];
  const places = [tables.to(place), slots.to(place), positions.to(place), heads];
  const scale = 1 / Math.sqrt(codes.keys.size(3));
  const rest = [own.keys, own.values, ...places, scale, window, own.keyScales, own.valueScales];
  return { out: aten<Tensor>(operator, put(projected), ofQ, ofK, 1e-6, ...turn, ...rest), ...own };
}

const shapes = [
  { rows: 16, heads: 16, groups: 8, size: 128, half: 64, window: 0, norm: true, blocks: 5 },
  { rows: 1, heads: 14, groups: 2, size: 64, half: 32, window: 0, norm: false, blocks: 5 },
  { rows: 17, heads: 4, groups: 1, size: 96, half: 24, window: 40, norm: true, blocks: 5 },
  { rows: 150, heads: 8, groups: 8, size: 32, half: 16, window: 0, norm: false, blocks: 5 },
  { rows: 5, heads: 2, groups: 2, size: 256, half: 128, window: 7, norm: true, blocks: 5 },
  { rows: 9, heads: 4, groups: 2, size: 48, half: 24, window: 0, norm: true, blocks: 5 },
  { rows: 9, heads: 4, groups: 2, size: 80, half: 40, window: 0, norm: true, blocks: 5 },
  { rows: 3, heads: 4, groups: 2, size: 128, half: 64, window: 0, norm: true, blocks: 70 },
];

describe.each(dtypes)(`decode_fused over 8 bits on ${device} in %s`, (dtype) => {
  it.each(shapes)('$rows rows, $heads heads of $size', ({ rows, heads, groups, size, half, window, norm, blocks }) =>
    scope(() => {
      seed(3);
      const length = blocks * 64 - 20;
      const indices = Array.from({ length: rows }, (_, i) => i);
      const slots = integers(indices.map((i) => rows - 1 - i));
      const positions = integers(indices.map((i) => (i * 67 + length - 3) % length));
      const given = drawnInputs(
        { heads, groups, size, half, window, norm },
        { slots, positions, length, rows, blocks },
      );
      const on = (place: string, type: DType) => fusedOver('attune::decode_fused', given, place, type);
      const [here, there] = [on('cpu', 'float32'), on(device, dtype)];
      expect(gap(there.out, here.out)).toBeLessThanOrEqual(boundOf(dtype));
      const keys = [there, here].map((each) => numbersOf(each.keys, each.keyScales)) as [Tensor, Tensor];
      expect(gap(...keys)).toBeLessThanOrEqual(boundOf(dtype) + 1 / 127); // rounding may fall to the next code
      expectSame(there.values, here.values);
      expectSame(there.valueScales, here.valueScales);
    }),
  );

  it.each([
    { heads: 4, groups: 2, size: 64, window: 0 },
    { heads: 6, groups: 6, size: 40, window: 30 }, // a size without a kernel: by operators of libtorch
  ])('decode_attention with a bias, heads of $size', ({ heads, groups, size, window }) =>
    scope(() => {
      seed(5);
      const rows = 6;
      const [q, k, v] = [heads, groups, groups].map((count) => randn([rows, count, size])) as [Tensor, Tensor, Tensor];
      const bias = randn([heads, 192]);
      const codes = randomCodes(rows * 3, groups, size);
      const on = (place: string, type: DType) => {
        const put = (value: Tensor) => value.to('bfloat16').to({ device: place, dtype: type, copy: true });
        const own = mapped(codes, (each) => each.to({ device: place, copy: true }));
        const whole = (of: (i: number) => number) =>
          integers(
            Array.from({ length: rows }, (_, i) => of(i)),
            { device: place },
          );
        const places = [scatteredTables(rows, 3).to(place), whole((i) => rows - 1 - i), whole((i) => i * 35 + 4)];
        const rest = [...places, 0.2, window, bias.to(place), own.keyScales, own.valueScales];
        return aten('attune::decode_attention', put(q), put(k), put(v), own.keys, own.values, ...rest);
      };
      expect(gap(on(device, dtype), on('cpu', 'float32'))).toBeLessThanOrEqual(boundOf(dtype));
    }),
  );
});

describe.each(dtypes)(`prompt_fused over 8 bits on ${device} in %s`, (dtype) => {
  const runs = [
    { slot: 2, from: 500, count: 41 },
    { slot: 0, from: 0, count: 3 },
    { slot: 1, from: 130, count: 9 },
  ];
  it.each([
    { heads: 16, groups: 8, size: 128, half: 64, window: 0, norm: true },
    { heads: 14, groups: 2, size: 64, half: 16, window: 0, norm: false },
    { heads: 4, groups: 4, size: 128, half: 64, window: 40, norm: true },
    { heads: 2, groups: 2, size: 32, half: 16, window: 0, norm: true },
  ])('$heads heads of $size, window $window', ({ heads, groups, size, half, window, norm }) =>
    scope(() => {
      seed(4);
      const tokens = runs.flatMap(({ slot, from, count }) =>
        Array.from({ length: count }, (_, i) => ({ slot, position: from + i })),
      );
      const slots = integers(tokens.map(({ slot }) => slot));
      const positions = integers(tokens.map(({ position }) => position));
      const places = { slots, positions, length: 600, rows: 4, blocks: 10 };
      const given = drawnInputs({ heads, groups, size, half, window, norm }, places);
      const on = (place: string, type: DType) => fusedOver('attune::prompt_fused', given, place, type);
      const [here, there] = [on('cpu', 'float32'), on(device, dtype)];
      expect(gap(there.out, here.out)).toBeLessThanOrEqual(boundOf(dtype));
      expectSame(there.values, here.values);
    }),
  );
});
