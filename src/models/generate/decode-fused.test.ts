/** Decoding's attention from the fused projection on, against sums written out in f64. */
import { afterEach, describe, expect, it } from 'vitest';
import { aten, randn, scope, seed, setThreads, type Tensor, tensor, threads, zeros } from '../../tensor/index.ts';

const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));
const at = (values: ArrayLike<number>, i: number) => values[i] as number;
const spread = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Math.max(...Array.from(a, (value, i) => Math.abs(value - at(b, i))));

interface Case {
  heads: number;
  groups: number;
  size: number;
  half: number;
  interleaved: boolean;
  norm: boolean;
  window: number;
  positions: number[];
}

/** RMS norm and rotation of one head, in f64. */
function prepared(head: number[], weight: number[] | null, cos: number[], sin: number[], c: Case): number[] {
  const scale = 1 / Math.sqrt(head.reduce((sum, x) => sum + x * x, 0) / head.length + 1e-6);
  const out = weight === null ? [...head] : head.map((x, i) => x * scale * at(weight, i));
  for (let i = 0; i < c.half; i++) {
    const [a, b] = c.interleaved ? [2 * i, 2 * i + 1] : [i, i + c.half];
    const [x, y] = [at(out, a), at(out, b)];
    out[a] = x * at(cos, i) - y * at(sin, i);
    out[b] = y * at(cos, i) + x * at(sin, i);
  }
  return out;
}

const ownThreads = threads();
afterEach(() => setThreads(ownThreads));

describe('attune::decode_fused', () => {
  const plain: Case = {
    heads: 6,
    groups: 6,
    size: 12,
    half: 6,
    interleaved: false,
    norm: false,
    window: 0,
    positions: [0, 1, 2, 3, 4, 5, 9, 19],
  };
  const cases: [string, Case][] = [
    ['one kv head per head', plain],
    ['shared kv heads, normed', { ...plain, groups: 2, norm: true }],
    ['neighbouring pairs, a part of the head', { ...plain, groups: 3, half: 4, interleaved: true }],
    ['no turn, a window', { ...plain, half: 0, window: 4 }],
    ['an odd head, one row', { ...plain, size: 7, half: 3, heads: 4, groups: 4, positions: [18] }],
  ];
  for (const [name, c] of cases) {
    it(`is norm, turn, cache and attention: ${name}`, () => {
      seed(3);
      scope(() => {
        const { heads, groups, size, half, positions } = c;
        const [rows, scale] = [positions.length, 0.3];
        const slots = positions.map((_, i) => (i * 3) % 11);
        const qkv = randn([rows, (heads + 2 * groups) * size]);
        // blocks of 4 positions; a slot's blocks are in no particular order
        const blockOf = (slot: number, i: number) => ((slot * 5 + i) * 7) % 55;
        const tables = tensor(
          Int32Array.from({ length: 55 }, (_, i) => blockOf(Math.floor(i / 5), i % 5)),
          { shape: [11, 5] },
        );
        const [keys, values] = [randn([55, 4, groups, size]), randn([55, 4, groups, size])];
        const [cos, sin] = [randn([rows, Math.max(1, half)]), randn([rows, Math.max(1, half)])];
        const [qw, kw] = [randn([size]), randn([size])];
        const [before, beforeValues] = [keys.numbers(), values.numbers()];
        const call = (pick: (t: Tensor) => Tensor, k: Tensor, v: Tensor) =>
          aten(
            'attune::decode_fused',
            pick(qkv),
            c.norm ? qw : null,
            c.norm ? kw : null,
            1e-6,
            half > 0 ? pick(cos) : null,
            half > 0 ? pick(sin) : null,
            c.interleaved,
            k,
            v,
            tables,
            pick(whole(slots)),
            pick(whole(positions)),
            heads,
            scale,
            c.window,
          );
        const [aloneKeys, aloneValues] = [keys.clone(), values.clone()];
        const out = call((t) => t, keys, values);

        const data = qkv.numbers();
        for (let row = 0; row < rows; row++) {
          const take = (values: number[], i: number) => values.slice(i * size, (i + 1) * size);
          const own = data.slice(row * (heads + 2 * groups) * size, (row + 1) * (heads + 2 * groups) * size);
          const angles = (t: Tensor) => (half > 0 ? t.select(0, row).numbers() : []);
          const ready = (i: number, w: Tensor) =>
            prepared(take(own, i), c.norm ? w.numbers() : null, angles(cos), angles(sin), c);
          const position = at(positions, row);
          const first = c.window > 0 ? Math.max(0, position - c.window + 1) : 0;
          for (let h = 0; h < heads; h++) {
            const g = Math.floor(h / (heads / groups));
            const place = (t: number) => blockOf(at(slots, row), Math.floor(t / 4)) * 4 + (t % 4);
            const cached = (from: number[], t: number) => take(from, place(t) * groups + g);
            const key = (t: number) => (t === position ? ready(heads + g, kw) : cached(before, t));
            const value = (t: number) => (t === position ? take(own, heads + groups + g) : cached(beforeValues, t));
            const places = Array.from({ length: position + 1 - first }, (_, i) => first + i);
            const q = ready(h, qw);
            const weights = places.map((t) => Math.exp(scale * key(t).reduce((sum, x, i) => sum + x * at(q, i), 0)));
            const total = weights.reduce((a, b) => a + b, 0);
            const expected = q.map((_, i) =>
              places.reduce((sum, t, j) => sum + (at(weights, j) / total) * at(value(t), i), 0),
            );
            expect(spread(out.select(0, row).select(0, h).numbers(), expected)).toBeLessThan(2e-5);
          }
          // the same to the bit without the other rows, however the heads are divided among threads
          for (const count of [1, 3, 16]) {
            setThreads(count);
            const alone = call((t) => t.narrow(0, row, 1), aloneKeys, aloneValues);
            expect(alone.numbers()).toEqual(out.narrow(0, row, 1).numbers());
          }
        }
        expect(aloneKeys.numbers()).toEqual(keys.numbers());
      });
    });
  }

  it('takes several tokens of one sequence at once, and gives what one after the other gives', () => {
    seed(4);
    scope(() => {
      const [heads, groups, size] = [4, 2, 8];
      const tables = tensor(Int32Array.of(3, 0, 2, 1), { shape: [2, 2] });
      const slots = [0, 1, 0, 0, 1, 0];
      const positions = [1, 5, 2, 3, 6, 4];
      const qkv = randn([6, (heads + 2 * groups) * size]);
      const [keys, values] = [randn([4, 4, groups, size]), randn([4, 4, groups, size])];
      const call = (first: number, count: number, k: Tensor, v: Tensor) => {
        const part = (all: number[]) => whole(all.slice(first, first + count));
        const norm = [null, null, 0, null, null, false];
        const rest = [tables, part(slots), part(positions), heads, 1, 0];
        return aten('attune::decode_fused', qkv.narrow(0, first, count), ...norm, k, v, ...rest).numbers();
      };
      const [oneKeys, oneValues] = [keys.clone(), values.clone()];
      const oneByOne = slots.flatMap((_, i) => call(i, 1, oneKeys, oneValues));
      expect(call(0, 6, keys, values)).toEqual(oneByOne);
      expect(keys.numbers()).toEqual(oneKeys.numbers());
      expect(values.numbers()).toEqual(oneValues.numbers());
    });
  });

  it('refuses what does not fit', () => {
    scope(() => {
      const cache = () => zeros([2, 4, 2, 8]);
      const good = tensor(Int32Array.of(1, 0), { shape: [2, 1] });
      const call = (
        qkv: Tensor,
        slots: number[],
        positions: number[],
        cos: Tensor | null = null,
        tables: Tensor = good,
      ) =>
        aten(
          'attune::decode_fused',
          qkv,
          null,
          null,
          0,
          cos,
          cos,
          false,
          cache(),
          cache(),
          tables,
          whole(slots),
          whole(positions),
          4,
          1,
          0,
        );
      expect(call(zeros([1, 64]), [1], [3]).shape).toEqual([1, 4, 8]);
      expect(call(zeros([0, 64]), [], []).shape).toEqual([0, 4, 8]);
      expect(() => call(zeros([1, 64]), [2], [0])).toThrow(/outside the cache/);
      expect(() => call(zeros([1, 64]), [0], [4])).toThrow(/outside the cache/);
      expect(() => call(zeros([1, 60]), [0], [0])).toThrow(/does not fit/);
      const beyond = tensor(Int32Array.of(1, 2), { shape: [2, 1] });
      expect(() => call(zeros([1, 64]), [1], [0], null, beyond)).toThrow(/a block lies outside the cache/);
      expect(() => call(zeros([1, 64]), [0], [0], null, good.to('int64'))).toThrow(/expected tables/);
      expect(() => call(zeros([1, 64]), [0], [0], zeros([1, 5]))).toThrow(/half a head/);
    });
  });
});
