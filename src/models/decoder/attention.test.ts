/** attune::packed_attention against softmax attention written out in float64, forward and backward. */
import { describe, expect, it } from 'vitest';
import {
  aten,
  cat,
  randn,
  scope,
  seed,
  setThreads,
  type Tensor,
  TensorError,
  tensor,
  threads,
} from '../../tensor/index.ts';

interface Case {
  lengths: number[];
  heads?: number;
  groups?: number;
  size?: number;
  window?: number;
  bias?: boolean;
  prefixes?: number[];
}

interface Result {
  out: Tensor;
  dq: Tensor;
  dk: Tensor;
  dv: Tensor;
}

function startsOf(lengths: readonly number[]): number[] {
  const starts = [0];
  for (const length of lengths) starts.push((starts.at(-1) as number) + length);
  return starts;
}

/** One sequence, [rows, H, D]; keys and values are [keys, G, D], and the last `rows` of them are the sequence's own. */
function plain(q: Tensor, k: Tensor, v: Tensor, scale: number, window: number, bias: Tensor | null): Tensor {
  const [rows, heads, keys] = [q.size(0), q.size(1), k.size(0)];
  const share = heads / k.size(1);
  const headOf = tensor(BigInt64Array.from({ length: heads }, (_, h) => BigInt(Math.floor(h / share))));
  const hidden = Float64Array.from({ length: rows * keys }, (_, i) => {
    const [place, key] = [keys - rows + Math.floor(i / keys), i % keys];
    return key > place || (window > 0 && key <= place - window) ? Number.NEGATIVE_INFINITY : 0;
  });
  let scores = q
    .permute(1, 0, 2)
    .matmul(k.indexSelect(1, headOf).permute(1, 2, 0))
    .mul(scale)
    .add(tensor(hidden, { shape: [rows, keys] }));
  if (bias !== null) scores = scores.add(bias.narrow(1, 0, keys).unsqueeze(1));
  return scores
    .softmax(-1)
    .matmul(v.indexSelect(1, headOf).permute(1, 0, 2))
    .permute(1, 0, 2);
}

function expected(given: Case, [q, k, v, g]: Tensor[], bias: Tensor | null): Result {
  const leaves = [q, k, v].map((x) => (x as Tensor).detach().to('float64').requiresGrad_()) as [Tensor, Tensor, Tensor];
  const starts = startsOf(given.lengths);
  const part = (x: Tensor, s: number) => x.narrow(0, starts[s] as number, given.lengths[s] as number);
  const scale = (given.size ?? 16) ** -0.5;
  const outs = given.lengths.map((_, s) => {
    const prefix = given.prefixes?.[s] ?? -1;
    const [keys, values] = [leaves[1], leaves[2]].map((x) =>
      prefix < 0 ? part(x, s) : cat([part(x, prefix), part(x, s)], 0),
    ) as [Tensor, Tensor];
    return plain(part(leaves[0], s), keys, values, scale, given.window ?? 0, bias?.to('float64') ?? null);
  });
  const out = cat(outs, 0);
  out.backward((g as Tensor).to('float64'));
  const [dq, dk, dv] = leaves.map((leaf) => leaf.grad as Tensor) as [Tensor, Tensor, Tensor];
  return { out, dq, dk, dv };
}

function inputs({ lengths, heads = 4, groups = 2, size = 16, bias = false }: Case) {
  seed(7);
  const tokens = lengths.reduce((sum, length) => sum + length, 0);
  const tensors = [heads, groups, groups, heads].map((count) => randn([tokens, count, size]));
  return { tensors, bias: bias ? randn([heads, 2 * Math.max(...lengths)]) : null };
}

function packed(
  given: Case,
  [q, k, v, g]: Tensor[],
  bias: Tensor | null,
  dtype: keyof typeof bounds = 'float32',
): Result {
  const leaves = [q, k, v].map((x) => (x as Tensor).detach().to(dtype).requiresGrad_());
  const scale = (given.size ?? 16) ** -0.5;
  const rest = given.prefixes === undefined ? [] : [given.prefixes];
  const starts = startsOf(given.lengths);
  const out = aten<Tensor>('attune::packed_attention', ...leaves, starts, scale, given.window ?? 0, bias, 0, ...rest);
  out.backward((g as Tensor).to(dtype));
  const [dq, dk, dv] = leaves.map((leaf) => leaf.grad as Tensor) as [Tensor, Tensor, Tensor];
  return { out, dq, dk, dv };
}

/** The largest difference relative to the largest number, or to 1 if all are smaller (a lone key has no gradient). */
function difference(a: Tensor, b: Tensor): number {
  const wide = b.to('float64');
  return a.to('float64').sub(wide).abs().max().item() / Math.max(1, wide.abs().max().item());
}

/** In half precision results are rounded, and backward uses the rounded output. */
const bounds = { float64: 2e-6, float32: 2e-6, bfloat16: 1e-2, float16: 2e-3 };

function check(given: Case, dtype: keyof typeof bounds = 'float32'): void {
  scope(() => {
    const { tensors: drawn, bias } = inputs(given);
    const tensors = drawn.map((each) => each.to(dtype));
    const [ours, theirs] = [packed(given, tensors, bias, dtype), expected(given, tensors, bias)];
    for (const name of ['out', 'dq', 'dk', 'dv'] as const)
      expect(difference(ours[name], theirs[name]), `${name} of ${JSON.stringify(given)}`).toBeLessThan(bounds[dtype]);
  });
}

describe('attune::packed_attention', () => {
  it('is softmax attention for every length, across tiles and blocks', () => {
    for (const lengths of [[1], [2, 1, 3], [17, 31, 32, 33], [127, 128, 129], [300, 5, 64], [270, 300]])
      check({ lengths });
    check({ lengths: Array.from({ length: 40 }, (_, i) => i + 1), size: 8 });
  });

  it('takes every head size, in whole vectors or not', () => {
    for (const size of [1, 3, 8, 12, 20, 48, 64, 80, 128]) check({ lengths: [40, 7, 150], size });
  });

  it('shares kv heads among groups of query heads', () => {
    for (const [heads, groups] of [
      [1, 1],
      [3, 3],
      [6, 2],
      [5, 1],
    ] as const)
      check({ lengths: [33, 140], heads, groups });
  });

  it('looks back no further than the window', () => {
    for (const window of [1, 2, 5, 16, 31, 100, 200]) check({ lengths: [1, 40, 290, 64], window });
  });

  it('adds a bias per head and key position', () => {
    check({ lengths: [3, 40, 160], bias: true });
    check({ lengths: [40, 160], bias: true, window: 21 });
  });

  it('lets sequences continue another of the batch', () => {
    check({ lengths: [20, 5, 40, 1, 33], prefixes: [-1, 0, 0, 0, 0] });
    check({ lengths: [9, 130, 33, 200, 1, 70], prefixes: [3, -1, 1, -1, -1, 3] });
    check({ lengths: [50, 60, 9], prefixes: [-1, 0, 0], window: 30 });
    check({ lengths: [50, 40, 9], prefixes: [-1, 0, 0], bias: true, heads: 2, size: 20 });
  });

  it('is the same in operators, for other dtypes', () => {
    check({ lengths: [3, 140], bias: true, window: 20 }, 'float64');
    check({ lengths: [300] }, 'float64');
  });

  it('is the same in half precision but for rounding', () => {
    for (const dtype of ['bfloat16', 'float16'] as const) {
      check({ lengths: [3, 140], bias: true, window: 20 }, dtype);
      check({ lengths: [300, 5, 64], heads: 6 }, dtype);
      check({ lengths: [50, 40, 9], prefixes: [-1, 0, 0], heads: 2, size: 20 }, dtype);
    }
  });

  it('gives the same bits whatever the number of threads', () => {
    const before = threads();
    const given = { lengths: [70, 12, 200, 33, 90, 6], prefixes: [-1, 0, -1, 0, 2, 0] };
    try {
      const results = [1, 2, 5].map((count) => {
        setThreads(count);
        return scope(() => {
          const { tensors } = inputs(given);
          return Object.values(packed(given, tensors, null)).map((x) => (x as Tensor).numbers());
        });
      });
      expect(results[1]).toEqual(results[0]);
      expect(results[2]).toEqual(results[0]);
    } finally {
      setThreads(before);
    }
  });

  it('passes on what is not a number', () => {
    scope(() => {
      const { tensors } = inputs({ lengths: [20, 20] });
      (tensors[0] as Tensor).narrow(0, 5, 1).fill_(Number.NaN);
      const { out } = packed({ lengths: [20, 20] }, tensors, null);
      const rows = out.reshape(40, -1).tolist() as number[][];
      expect(rows.map((row) => row.some(Number.isNaN))).toEqual(rows.map((_, i) => i === 5));
      const { tensors: others } = inputs({ lengths: [20, 20] });
      (others[1] as Tensor).narrow(0, 25, 1).fill_(Number.NaN);
      const after = packed({ lengths: [20, 20] }, others, null)
        .out.reshape(40, -1)
        .tolist() as number[][];
      expect(after.map((row) => row.every(Number.isNaN))).toEqual(after.map((_, i) => i >= 25));
    });
  });

  it('refuses prefixes that make no sense', () => {
    scope(() => {
      const given = { lengths: [4, 4, 4] };
      const { tensors } = inputs(given);
      for (const prefixes of [
        [-1, 0],
        [-1, 3, 0],
        [-1, 0, 1],
        [0, -1, -1],
      ])
        expect(() => packed({ ...given, prefixes }, tensors, null), String(prefixes)).toThrow(TensorError);
      expect(() => packed({ ...given, prefixes: [-1, 0, 0] }, tensors, null, 'float64')).toThrow(
        /prefixes are for the CPU/,
      );
    });
  });
});
