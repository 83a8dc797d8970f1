/**
 * The operators of an 8-bit cache: codes and scales against the rule computed here, attention against attention over
 * the decoded values.
 */
import { describe, expect, it } from 'vitest';
import { aten, type DType, randn, scope, seed, type Tensor, tensor, zeros } from '../../../tensor/index.ts';

const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));
/** The largest |a − b| relative to the largest |b|. */
const spread = (a: Tensor, b: Tensor) => a.to('float32').sub(b).abs().max().item() / b.abs().max().item();

/** Block tables, [slots, width]: a slot's blocks are in no particular order. */
const tablesOf = (slots: number, width: number) =>
  tensor(
    Int32Array.from({ length: slots * width }, (_, i) => (i * 7 + 3) % (slots * width)),
    { shape: [slots, width] },
  );

interface Codes {
  keys: Tensor;
  values: Tensor;
  keyScales: Tensor;
  valueScales: Tensor;
}

const emptyCache = (blocks: number, block: number, groups: number, size: number): Codes => ({
  keys: zeros([blocks, block, groups, size], { dtype: 'int8' }),
  values: zeros([blocks, block, groups, size], { dtype: 'int8' }),
  keyScales: zeros([blocks, groups, block], { dtype: 'bfloat16' }),
  valueScales: zeros([blocks, groups, block], { dtype: 'bfloat16' }),
});
const copyOf = ({ keys, values, keyScales, valueScales }: Codes): Codes => ({
  keys: keys.clone(),
  values: values.clone(),
  keyScales: keyScales.clone(),
  valueScales: valueScales.clone(),
});
const write = ({ keys, values, keyScales, valueScales }: Codes, targets: Tensor, k: Tensor, v: Tensor) =>
  void aten('attune::cache_write_', keys, values, keyScales, valueScales, targets, k, v);
/** The decoded values, [blocks, block, groups, size]. */
const numbersOf = (codes: Tensor, scales: Tensor) => codes.to('float32').mul(scales.transpose(1, 2).unsqueeze(-1));

/** Rounds a non-negative number up to bf16. */
function roundedUp(x: number): number {
  const bits = new Uint32Array(new Float32Array([x]).buffer);
  bits[0] = Math.ceil((bits[0] as number) / 0x10000) * 0x10000;
  return new Float32Array(bits.buffer)[0] as number;
}
/** A head's scale and codes by the rule, in f32. */
function expected(head: number[]): { scale: number; codes: number[] } {
  if (!head.every(Number.isFinite)) return { scale: Number.NaN, codes: head.map(() => 0) };
  const scale = roundedUp(Math.fround(Math.max(...head.map(Math.abs)) / 127));
  return { scale, codes: head.map((x) => (scale === 0 ? 0 : roundToEven(Math.fround(x / scale)))) };
}
function roundToEven(x: number): number {
  const below = Math.floor(x);
  const rest = x - below;
  const rounded = rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1;
  return rounded === 0 ? 0 : rounded; // not −0
}

describe('attune::cache_write_', () => {
  for (const size of [7, 32, 48, 64, 80, 96, 128, 256])
    for (const dtype of ['float32', 'bfloat16', 'float16'] as DType[])
      it(`writes max|x| / 127, rounded up, and x / scale of each head: ${size} wide, ${dtype}`, () =>
        scope(() => {
          seed(1);
          const [groups, block, tokens] = [3, 4, 6];
          const targets = [9, 2, 11, 0, 7, 4];
          const rows = [1, 2].map((factor) => {
            const x = randn([tokens, groups, size]).mul(factor);
            x.select(0, 1).zero_();
            x.select(0, 2).select(0, 1).select(0, 3).fill_(1000); // an outlier: the other codes become 0
            return x.to(dtype);
          }) as [Tensor, Tensor];
          const cache = emptyCache(3, block, groups, size);
          write(cache, whole(targets), ...rows);
          for (const [x, codes, scales] of [
            [rows[0], cache.keys, cache.keyScales],
            [rows[1], cache.values, cache.valueScales],
          ] as const)
            for (const [i, target] of targets.entries())
              for (let group = 0; group < groups; group++) {
                const at = [Math.floor(target / block), target % block] as const;
                const found = {
                  scale: scales.select(0, at[0]).select(0, group).select(0, at[1]).item(),
                  codes: codes.select(0, at[0]).select(0, at[1]).select(0, group).numbers(),
                };
                expect(found).toEqual(expected(x.select(0, i).select(0, group).to('float32').numbers()));
              }
          // the other positions are unchanged
          expect(cache.keyScales.numbers().filter((scale) => scale === 0)).toHaveLength((12 - tokens + 1) * groups);
        }));

  it('makes what is not finite visible, and takes the smallest numbers there are', () =>
    scope(() => {
      const x = zeros([3, 1, 4]);
      x.select(0, 0).select(0, 0).select(0, 2).fill_(Number.POSITIVE_INFINITY);
      x.select(0, 1).select(0, 0).select(0, 1).fill_(Number.NaN);
      x.select(0, 2).fill_(95 * 2 ** -133);
      const cache = emptyCache(1, 4, 1, 4);
      write(cache, whole([0, 1, 2]), x, x);
      const scales = cache.keyScales.numbers();
      expect(scales.slice(0, 2).every(Number.isNaN)).toBe(true);
      expect(
        cache.keys
          .narrow(1, 0, 2)
          .numbers()
          .every((code) => code === 0),
      ).toBe(true);
      expect(scales[2]).toBe(2 ** -133); // the smallest of bf16: 95 / 127 of it
      expect(cache.keys.select(1, 2).numbers()).toEqual([95, 95, 95, 95]);
    }));

  it('refuses what does not fit', () =>
    scope(() => {
      const cache = emptyCache(2, 4, 1, 4);
      const rows = zeros([1, 1, 4]);
      expect(() => write(cache, whole([8]), rows, rows)).toThrow(/outside the cache/);
      expect(() => write(cache, whole([0, 1]), rows, rows)).toThrow(/one int64 target/);
      expect(() => write(cache, whole([0]), zeros([1, 2, 4]), zeros([1, 2, 4]))).toThrow(/fit the cache/);
      expect(() => write({ ...cache, keys: zeros([2, 4, 1, 4]) }, whole([0]), rows, rows)).toThrow(/int8 codes/);
      expect(() =>
        write({ ...cache, keyScales: zeros([2, 4, 1], { dtype: 'bfloat16' }) }, whole([0]), rows, rows),
      ).toThrow(/scales \[N, G, L\]/);
    }));
});

describe('attention over a cache in 8 bits', () => {
  it('refuses to have no query heads', () =>
    scope(() => {
      const { keys, values, keyScales, valueScales } = emptyCache(2, 4, 1, 4);
      const place = [tablesOf(1, 2), whole([0]), whole([5])] as const;
      const x = zeros([1, 1, 4]);
      const scales = [keyScales, valueScales] as const;
      expect(() =>
        aten('attune::decode_attention', zeros([1, 0, 4]), x, x, keys, values, ...place, 1, 0, null, ...scales),
      ).toThrow(/query heads/);
      const fused = [zeros([1, 8]), null, null, 0, null, null, false] as const;
      expect(() => aten('attune::decode_fused', ...fused, keys, values, ...place, 0, 1, 0, ...scales)).toThrow(
        /query heads/,
      );
    }));

  const shapes = [
    { heads: 4, groups: 2, size: 7, window: 0, biased: false },
    { heads: 4, groups: 4, size: 32, window: 5, biased: false },
    { heads: 6, groups: 2, size: 48, window: 0, biased: true },
    { heads: 8, groups: 2, size: 64, window: 0, biased: false },
    { heads: 2, groups: 1, size: 80, window: 0, biased: false },
    { heads: 3, groups: 3, size: 96, window: 9, biased: true },
    { heads: 16, groups: 8, size: 128, window: 0, biased: false },
    { heads: 2, groups: 2, size: 256, window: 0, biased: false },
  ];
  const positions = [0, 3, 11, 19, 7];
  const slots = [4, 0, 2, 1, 3];
  const block = 4;

  /** A cache of random tokens, some with an outlier, some of zeros. */
  function filledCache(groups: number, size: number): Codes {
    const [blocks, cache] = [25, emptyCache(25, block, groups, size)];
    const all = whole(Array.from({ length: blocks * block }, (_, i) => i));
    const rows = () => {
      const x = randn([blocks * block, groups, size]);
      x.select(0, 5).zero_();
      x.select(0, 9).narrow(-1, 1, 1).mul_(50);
      return x;
    };
    write(cache, all, rows(), rows());
    return cache;
  }

  for (const dtype of ['float32', 'bfloat16', 'float16'] as DType[])
    it.each(shapes)(
      `is attention over the numbers that it means, in ${dtype}: $heads heads of $size`,
      ({ heads, groups, size, window, biased }) =>
        scope(() => {
          seed(2);
          const rows = positions.length;
          const cache = filledCache(groups, size);
          const tables = tablesOf(5, 5);
          const half = (t: Tensor) => t.to('bfloat16').to('float32'); // numbers that every dtype holds
          const [q, k, v] = [
            half(randn([rows, heads, size])),
            half(randn([rows, groups, size])),
            half(randn([rows, groups, size])),
          ];
          const bias = biased ? randn([heads, 20]) : null;
          const rest = [tables, whole(slots), whole(positions), 0.2, window, bias] as const;
          const attend = (codes: Codes, type: DType, pick = (t: Tensor) => t) =>
            aten(
              'attune::decode_attention',
              ...([q, k, v].map((x) => pick(x.to(type))) as [Tensor, Tensor, Tensor]),
              codes.keys,
              codes.values,
              tables,
              pick(whole(slots)),
              pick(whole(positions)),
              0.2,
              window,
              bias,
              codes.keyScales,
              codes.valueScales,
            );
          const written = copyOf(cache);
          const found = attend(written, dtype);
          // the new tokens as the cache holds them
          const places = whole(
            positions.map((p, i) => ((((slots[i] as number) * 5 + Math.floor(p / 4)) * 7 + 3) % 25) * 4 + (p % 4)),
          );
          write(cache, places, k, v);
          for (const name of ['keys', 'values', 'keyScales', 'valueScales'] as const)
            expect(written[name].numbers()).toEqual(cache[name].numbers());
          const [keys, values] = [numbersOf(cache.keys, cache.keyScales), numbersOf(cache.values, cache.valueScales)];
          const own = (t: Tensor) => t.flatten(0, 1).indexSelect(0, places);
          const plain = aten(
            'attune::decode_attention',
            q,
            own(keys),
            own(values),
            keys.clone(),
            values.clone(),
            ...rest,
          );
          expect(spread(found, plain)).toBeLessThan(dtype === 'float32' ? 1e-5 : 2 ** -8);
          // a row alone: the same to the bit
          for (const row of [0, 3])
            expect(attend(copyOf(cache), dtype, (t) => t.narrow(0, row, 1)).numbers()).toEqual(
              found.narrow(0, row, 1).numbers(),
            );
        }),
    );

  it.each([
    { norm: true, half: 8, interleaved: false },
    { norm: false, half: 4, interleaved: true },
    { norm: false, half: 0, interleaved: false },
  ])('from the projection on: norm $norm, $half angles', ({ norm, half, interleaved }) =>
    scope(() => {
      seed(3);
      const [heads, groups, size] = [4, 2, 16];
      const rows = positions.length;
      const cache = filledCache(groups, size);
      const qkv = randn([rows, (heads + 2 * groups) * size]);
      const [qWeight, kWeight] = norm ? [randn([size]), randn([size])] : [null, null];
      const [cos, sin] = half > 0 ? [randn([rows, half]), randn([rows, half])] : [null, null];
      const tables = tablesOf(5, 5);
      const call = (operator: string, keys: Tensor, values: Tensor, ...scales: Tensor[]) =>
        aten(
          operator,
          ...[qkv, qWeight, kWeight, 1e-6, cos, sin, interleaved, keys, values, tables],
          ...[whole(slots), whole(positions), heads, 0.3, 0, ...scales],
        );
      // The plain operator leaves the prepared keys in its cache: written as codes, they equal what the other one
      // wrote.
      const [keys, values] = [numbersOf(cache.keys, cache.keyScales), numbersOf(cache.values, cache.valueScales)];
      call('attune::decode_fused', keys, values);
      const places = whole(
        positions.map((p, i) => ((((slots[i] as number) * 5 + Math.floor(p / 4)) * 7 + 3) % 25) * 4 + (p % 4)),
      );
      const own = (t: Tensor) => t.flatten(0, 1).indexSelect(0, places);
      const [k, v] = [own(keys), own(values)];
      const q = aten(
        'attune::decode_fused',
        ...[qkv, qWeight, kWeight, 1e-6, cos, sin, interleaved],
        ...[keys, values, tables, whole(slots), whole(positions), heads, 0.3, 0],
      );
      for (const operator of ['attune::decode_fused', 'attune::prompt_fused']) {
        const written = copyOf(cache);
        const found = call(operator, written.keys, written.values, written.keyScales, written.valueScales);
        const direct = copyOf(cache);
        write(direct, places, k, v);
        for (const name of ['keys', 'values', 'keyScales', 'valueScales'] as const)
          expect(written[name].numbers()).toEqual(direct[name].numbers());
        // the row's own key and value are rounded, the others are the same numbers
        expect(spread(found, q)).toBeLessThan(0.1);
        expect(spread(found, q)).toBeGreaterThan(0);
      }
    }),
  );

  it('several tokens of one sequence give what one after the other gives', () =>
    scope(() => {
      seed(4);
      const [heads, groups, size] = [4, 2, 8];
      const cache = filledCache(groups, size);
      const [rowSlots, rowPositions] = [
        [0, 1, 0, 0, 1, 0],
        [1, 5, 2, 3, 6, 4],
      ];
      const qkv = randn([6, (heads + 2 * groups) * size]);
      const call = (first: number, count: number, codes: Codes) => {
        const part = (all: number[]) => whole(all.slice(first, first + count));
        return aten(
          'attune::decode_fused',
          ...[qkv.narrow(0, first, count), null, null, 0, null, null, false, codes.keys, codes.values, tablesOf(5, 5)],
          ...[part(rowSlots), part(rowPositions), heads, 1, 0, codes.keyScales, codes.valueScales],
        ).numbers();
      };
      const [together, apart] = [copyOf(cache), copyOf(cache)];
      const oneByOne = rowSlots.flatMap((_, i) => call(i, 1, apart));
      expect(call(0, 6, together)).toEqual(oneByOne);
      expect(together.keys.numbers()).toEqual(apart.keys.numbers());
      expect(together.keyScales.numbers()).toEqual(apart.keyScales.numbers());
    }));

  it('refuses scales of keys without those of values, and codes without scales', () =>
    scope(() => {
      const cache = emptyCache(2, 4, 1, 8);
      const x = zeros([1, 1, 8]);
      const call = (...scales: (Tensor | null)[]) =>
        aten(
          'attune::decode_attention',
          ...[x, x, x, cache.keys, cache.values, tablesOf(1, 2), whole([0]), whole([0]), 1, 0, null, ...scales],
        );
      expect(
        call(cache.keyScales, cache.valueScales)
          .numbers()
          .every((value) => value === 0),
      ).toBe(true);
      expect(() => call(cache.keyScales, null)).toThrow(/scales of keys and of values/);
      expect(() => call(null, null)).toThrow(/of their dtype, or int8 codes with bfloat16 scales/);
    }));
});
