/**
 * linear_logprob against the direct computation: numbers of PyTorch 2.13, log_softmax + gather + entropy, finite
 * differences.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { logprobChunk } from './functional.ts';
import {
  dropout,
  embedding,
  gelu,
  gradients,
  layerNorm,
  linear,
  linearLogprob,
  liveTensors,
  noGrad,
  ones,
  randint,
  randn,
  rmsNorm,
  scope,
  seed,
  setThreads,
  type Tensor,
  TensorError,
  tensor,
  threads,
  where,
  zeros,
} from './index.ts';

const sines = (i: number, shape: number[], scale = 1) =>
  tensor(
    Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, j) => scale * Math.sin(i * 10 + j * 1.7)),
    { shape },
  );

/** The same with all logits in memory. */
function whole(
  hidden: Tensor,
  weight: Tensor,
  targets: Tensor,
  temperature: number,
): { logp: Tensor; entropy: Tensor } {
  const wide = hidden.dtype === 'float64' ? 'float64' : 'float32';
  const log = hidden.to(wide).matmul(weight.to(wide).t()).div(temperature).logSoftmax(-1);
  const picked = log.gather(1, targets.clamp(0).unsqueeze(1)).squeeze(1);
  return { logp: where(targets.ge(0), picked, 0), entropy: log.exp().mul(log).sum(-1).neg() };
}

const spread = (a: Tensor, b: Tensor) => a.to('float64').sub(b.to('float64')).abs().max().item();

it('layerNorm and gelu in float16 on a CPU are those of float32, rounded', () => {
  scope(() => {
    const [x, weight, bias] = [sines(1, [5, 32], 3), sines(2, [32]), sines(3, [32])].map((each) => each.to('float16'));
    const wide = (each?: Tensor) => each?.to('float32') as Tensor;
    const expected = layerNorm(wide(x), wide(weight), wide(bias), 1e-5);
    const normed = layerNorm(x as Tensor, weight as Tensor, bias as Tensor, 1e-5);
    expect([normed.dtype, normed.numbers()]).toEqual(['float16', expected.to('float16').numbers()]);
    for (const approximate of ['none', 'tanh'] as const)
      expect(gelu(x as Tensor, approximate).numbers()).toEqual(gelu(wide(x), approximate).to('float16').numbers());
  });
});

describe('linear', () => {
  const sizes = [1, 2, 5, 16, 47, 128, 200].flatMap((rows) => [
    [rows, 32, 6],
    [rows, 97, 40],
  ]);

  it.each(sizes)('%i rows of %i by %i: the same bits whether or not a gradient is wanted', (rows, inputs, outputs) => {
    seed(rows);
    for (const dtype of ['float32', 'bfloat16'] as const) {
      const random = (...shape: number[]) => randn(shape).to(dtype);
      const [x, weight, bias] = [random(rows, inputs), random(outputs, inputs), random(outputs)];
      const wanted = (tensor: Tensor) => tensor.clone().requiresGrad_();
      for (const given of [null, bias]) {
        const plain = linear(x, weight, given).tolist();
        expect(linear(wanted(x), weight, given).tolist()).toEqual(plain);
        expect(linear(x, wanted(weight), given).tolist()).toEqual(plain);
        if (given !== null) expect(linear(x, weight, wanted(given)).tolist()).toEqual(plain);
        expect(noGrad(() => linear(wanted(x), wanted(weight), given)).tolist()).toEqual(plain);
      }
    }
  });

  it.each(sizes)('%i rows of %i by %i: has the gradient of the product', (rows, inputs, outputs) => {
    seed(rows + 1);
    const drawn = [randn([rows, inputs]), randn([outputs, inputs]), randn([outputs])];
    const by = randn([rows, outputs]).to('bfloat16');
    // in bf16 relative to the largest number, which is rounded
    for (const [dtype, bound] of [
      ['float32', 1e-6],
      ['bfloat16', 1e-2],
    ] as const) {
      const leaves = drawn.map((t) => t.to(dtype).requiresGrad_()) as [Tensor, Tensor, Tensor];
      const ours = gradients([linear(...leaves)], leaves, { incoming: [by.to(dtype)] });
      const wide = leaves.map((t) => t.detach().to('float64').requiresGrad_()) as [Tensor, Tensor, Tensor];
      const product = wide[0].matmul(wide[1].t()).add(wide[2]);
      const theirs = gradients([product], wide, { incoming: [by.to('float64')] }) as Tensor[];
      for (const [i, gradient] of ours.entries()) {
        const expected = theirs[i] as Tensor;
        const largest = Math.max(1, expected.abs().max().item() as number);
        expect(spread(gradient as Tensor, expected)).toBeLessThan(bound * largest);
      }
    }
    const [x, weight] = drawn.map((t) => t.requiresGrad_()) as [Tensor, Tensor];
    // Only the gradients that are asked for.
    expect(gradients([linear(x, weight.detach()).sum()], [x])[0]?.shape).toEqual([rows, inputs]);
    expect(gradients([linear(x.detach(), weight).sum()], [weight])[0]?.shape).toEqual([outputs, inputs]);
  });
});

describe('linearLogprob', () => {
  it('gives the numbers that PyTorch gives', () => {
    const hidden = sines(0, [4, 3]).requiresGrad_();
    const weight = sines(1, [6, 3], 2).requiresGrad_();
    const { logp, entropy } = linearLogprob(hidden, weight, tensor([0n, 5n, -1n, 2n]), { temperature: 0.7, chunk: 3 });
    logp
      .mul(tensor([1, -2, 3, 0.5]))
      .add(entropy.mul(tensor([0.1, 0.2, 0.3, -0.4])))
      .sum()
      .backward();
    const expected: [Tensor | null, number[]][] = [
      [logp, [-5.992627, -1.457956, 0, -2.222936]],
      [entropy, [0.7748294, 0.7652302, 0.8492838, 0.8068419]],
      [
        hidden.grad,
        [
          -1.874554, -4.564007, 3.050648, -0.01353875, 4.293845, -1.092937, 0.03237638, 0.08257471, -0.05365496,
          0.998818, 0.9220611, -1.236423,
        ],
      ],
      [
        weight.grad,
        [
          -0.2414978, 1.631175, -0.1788381, -0.1293377, 0.29276, 0.05389666, 0.2175052, -0.647692, -0.05060209,
          -0.0284711, -1.098588, 0.3115651, -1.835044, 0.7711515, 1.636327, 2.016846, -0.9488068, -1.772349,
        ],
      ],
    ];
    for (const [actual, numbers] of expected) {
      for (const [i, value] of (actual as Tensor).numbers().entries())
        expect(value).toBeCloseTo(numbers[i] as number, 5);
    }
  });

  it.each([
    [1, 1],
    [3, 1],
    [7, 0.5],
    [16, 2],
    [1000, 1.3],
  ])('agrees with the whole computation to 1e-5 (chunk %i, temperature %f)', (chunk, temperature) => {
    seed(chunk);
    const make = () => {
      seed(7);
      return [randn([16, 24]).requiresGrad_(), randn([97, 24]).requiresGrad_()] as const;
    };
    const targets = randint(-1, 97, [16]);
    const outer = [randn([16]), randn([16])] as const;
    const run = (f: (h: Tensor, w: Tensor) => { logp: Tensor; entropy: Tensor }) => {
      const [hidden, weight] = make();
      const { logp, entropy } = f(hidden, weight);
      logp.mul(outer[0]).add(entropy.mul(outer[1])).sum().backward();
      return [logp, entropy, hidden.grad as Tensor, weight.grad as Tensor];
    };
    const chunked = run((h, w) => linearLogprob(h, w, targets, { temperature, chunk }));
    const complete = run((h, w) => whole(h, w, targets, temperature));
    for (const [i, item] of chunked.entries()) {
      const other = complete[i] as Tensor;
      expect(spread(item, other) / Math.max(1, other.abs().max().item())).toBeLessThan(1e-5);
    }
  });

  it.each([1, 4, 1000])('takes the vocabulary in blocks: f64 agrees to 1e-12 (chunk %i)', (chunk) => {
    seed(11);
    const [h, w] = [randn([9, 8], { dtype: 'float64' }), randn([200, 8], { dtype: 'float64' })];
    const targets = tensor([0n, 63n, 64n, 127n, 128n, 199n, -1n, 5n, 70n]);
    const outer = [randn([9], { dtype: 'float64' }), randn([9], { dtype: 'float64' })] as const;
    const run = (f: (h: Tensor, w: Tensor) => { logp: Tensor; entropy: Tensor }) => {
      const leaves = [h.detach().requiresGrad_(), w.detach().requiresGrad_()] as const;
      const { logp, entropy } = f(...leaves);
      return gradients([logp.mul(outer[0]).add(entropy.mul(outer[1])).sum()], [...leaves]) as Tensor[];
    };
    const blocks = run((a, b) => linearLogprob(a, b, targets, { temperature: 1.7, chunk }));
    const complete = run((a, b) => whole(a, b, targets, 1.7));
    for (const [i, item] of blocks.entries()) expect(spread(item, complete[i] as Tensor)).toBeLessThan(1e-12);
  });

  it('has the gradients that differences give, in f64', () => {
    seed(5);
    const targets = tensor([2n, -1n, 0n]);
    const outer = [tensor([0.3, 1, -2], { dtype: 'float64' }), tensor([1, -0.5, 0.7], { dtype: 'float64' })] as const;
    const f = (h: Tensor, w: Tensor) => {
      const { logp, entropy } = linearLogprob(h, w, targets, { temperature: 1.7, chunk: 2 });
      return logp.mul(outer[0]).add(entropy.mul(outer[1])).sum();
    };
    const at = [randn([3, 4], { dtype: 'float64' }), randn([5, 4], { dtype: 'float64' })] as const;
    const leaves = at.map((item) => item.detach().clone().requiresGrad_()) as [Tensor, Tensor];
    f(...leaves).backward();
    for (const which of [0, 1] as const) {
      const values = at[which].numbers();
      const gradient = (leaves[which].grad as Tensor).numbers();
      for (const i of values.keys()) {
        const value = (shift: number) =>
          noGrad(() => {
            const moved = tensor(values.with(i, (values[i] as number) + shift), {
              dtype: 'float64',
              shape: at[which].shape,
            });
            return (which === 0 ? f(moved, at[1]) : f(at[0], moved)).item();
          });
        expect(gradient[i]).toBeCloseTo((value(1e-6) - value(-1e-6)) / 2e-6, 6);
      }
    }
  });

  it('a target of −1 gives 0 and no gradient, but has its entropy', () => {
    const hidden = sines(2, [2, 3]).requiresGrad_();
    const weight = sines(3, [4, 3]).requiresGrad_();
    const { logp, entropy } = linearLogprob(hidden, weight, tensor([-1n, -100n]));
    expect(logp.tolist()).toEqual([0, 0]);
    expect(entropy.gt(0).all().item()).toBe(1);
    logp.sum().backward(undefined, { retainGraph: true });
    expect(hidden.grad?.abs().max().item()).toBe(0);
    expect(weight.grad?.abs().max().item()).toBe(0);
    entropy.sum().backward();
    expect(hidden.grad?.abs().max().item()).toBeGreaterThan(0);
  });

  it('keeps to what is asked for: one output, one input', () => {
    const [hidden, weight] = [sines(2, [3, 3]), sines(3, [4, 3])];
    const targets = tensor([0n, 1n, 2n]);
    const frozen = linearLogprob(hidden.requiresGrad_(), weight, targets);
    frozen.logp.sum().backward();
    expect(weight.grad).toBeNull();
    const byLogp = hidden.grad?.numbers();
    const full = weight.detach().clone().requiresGrad_();
    const [again] = gradients([linearLogprob(hidden, full, targets).logp.sum()], [hidden]);
    expect(again?.numbers()).toEqual(byLogp);
    const [head] = gradients([linearLogprob(hidden.detach(), full, targets).entropy.sum()], [full]);
    const [expected] = gradients([whole(hidden.detach(), full, targets, 1).entropy.sum()], [full]);
    expect(spread(head as Tensor, expected as Tensor)).toBeLessThan(1e-5);
    expect(noGrad(() => linearLogprob(hidden, weight, targets)).logp.requiresGrad).toBe(false);
  });

  it('bf16: logp and entropy in f32, the gradient of the head summed in f32 over chunks', () => {
    seed(9);
    const [h, w] = [randn([256, 16]).div(4).to('bfloat16'), randn([150, 16]).to('bfloat16')];
    const targets = randint(0, 150, [256]);
    const run = (chunk: number) => {
      const [hidden, weight] = [h.detach().requiresGrad_(), w.detach().requiresGrad_()];
      const { logp, entropy } = linearLogprob(hidden, weight, targets, { chunk });
      expect([logp.dtype, entropy.dtype]).toEqual(['float32', 'float32']);
      logp.sum().backward();
      expect([hidden.grad?.dtype, weight.grad?.dtype]).toEqual(['bfloat16', 'bfloat16']);
      return { logp, weight: weight.grad as Tensor };
    };
    const [one, all] = [run(1), run(256)];
    const [wideH, wideW] = [h.to('float32'), w.to('float32').requiresGrad_()];
    const exact = whole(wideH, wideW, targets, 1);
    exact.logp.sum().backward();
    const size = (wideW.grad as Tensor).abs().max().item();
    expect(spread(one.logp, exact.logp)).toBeLessThan(0.03); // logits of ~4 rounded to 8 bits
    // 256 single rows added in bf16 would lose more than a unit in the last place; both ways are within one of the true
    // sum
    expect(spread(one.weight, wideW.grad as Tensor) / size).toBeLessThan(2 ** -7);
    expect(spread(all.weight, wideW.grad as Tensor) / size).toBeLessThan(2 ** -7);
  });

  it('is stable where exp would overflow', () => {
    const hidden = tensor([[1000, -1000]]);
    const { logp, entropy } = linearLogprob(
      hidden,
      tensor([
        [1, 0],
        [0, 1],
      ]),
      tensor([0n]),
    );
    expect([logp.item(), entropy.item()]).toEqual([0, 0]);
    expect(
      linearLogprob(
        hidden,
        tensor([
          [1, 0],
          [0, 1],
        ]),
        tensor([1n]),
      ).logp.item(),
    ).toBe(-2000);
  });

  it('takes no rows, strided inputs, and leaves nothing behind', () => {
    expect(linearLogprob(zeros([0, 3]), ones([4, 3]), zeros([0], { dtype: 'int64' })).logp.shape).toEqual([0]);
    const [h, w] = [sines(1, [3, 4]).t(), sines(2, [3, 5]).t()];
    const targets = tensor([0n, 1n, 2n, 3n]);
    expect(spread(linearLogprob(h, w, targets).logp, whole(h, w, targets, 1).logp)).toBeLessThan(1e-6);
    const leaf = w.contiguous().requiresGrad_();
    leaf.grad = zeros([5, 3]);
    const before = liveTensors();
    for (let i = 0; i < 10; i++) {
      scope(() => {
        const { logp, entropy } = linearLogprob(h, leaf, targets);
        logp.add(entropy).sum().backward();
      });
    }
    expect(liveTensors()).toBe(before);
  });

  it.each<[string, () => unknown, RegExp]>([
    [
      'shapes',
      () => linearLogprob(ones([2, 3]), ones([4, 5]), tensor([0n, 0n])),
      /last size[\s\S]*given: \(float32\[2, 3\], float32\[4, 5\], int64\[2\]/,
    ],
    ['rows', () => linearLogprob(ones([2, 3]), ones([4, 3]), tensor([0n])), /one target per row/],
    ['dimensions', () => linearLogprob(ones([3]), ones([4, 3]), tensor([0n])), /expected hidden/],
    ['target dtype', () => linearLogprob(ones([1, 3]), ones([4, 3]), tensor([0])), /targets are int64/],
    ['mixed dtypes', () => linearLogprob(ones([1, 3]), ones([4, 3]).to('float64'), tensor([0n])), /differ in dtype/],
    ['integers', () => linearLogprob(tensor([[1n]]), tensor([[1n]]), tensor([0n])), /floating-point/],
    ['a target out of range', () => linearLogprob(ones([1, 3]), ones([4, 3]), tensor([4n])), /out of bounds/],
    ['an empty vocabulary', () => linearLogprob(ones([1, 3]), zeros([0, 3]), tensor([-1n])), /vocabulary is empty/],
    ['temperature', () => linearLogprob(ones([1, 3]), ones([4, 3]), tensor([0n]), { temperature: 0 }), /temperature/],
    ['chunk', () => linearLogprob(ones([1, 3]), ones([4, 3]), tensor([0n]), { chunk: 0 }), /chunk/],
  ])('refuses wrong %s', (_, use, message) => {
    expect(use).toThrow(TensorError);
    expect(use).toThrow(message);
  });

  it('cannot be differentiated twice, and says so instead of being wrong', () => {
    const hidden = sines(1, [2, 3]).requiresGrad_();
    const twice = () => {
      const [first] = gradients([linearLogprob(hidden, sines(2, [4, 3]), tensor([0n, 1n])).logp.sum()], [hidden], {
        createGraph: true,
      });
      return gradients([(first as Tensor).sum()], [hidden]);
    };
    expect(twice).toThrow(TensorError);
    expect(twice).toThrow(/cannot be differentiated twice/);
  });

  it('gives the same gradients again over a retained graph, from kept logits and from computed ones', () => {
    seed(7);
    const [hidden, weight] = [randn([11, 6]).requiresGrad_(), randn([9, 6]).requiresGrad_()];
    const { logp, entropy } = linearLogprob(hidden, weight, randint(0, 9, [11]), { chunk: 2 });
    const out = [logp.add(entropy).sum()];
    const [first, second] = [0, 1].map(() => gradients(out, [hidden, weight], { retainGraph: true })) as [
      Tensor[],
      Tensor[],
    ];
    for (const [i, item] of first.entries()) expect(spread(item, second[i] as Tensor)).toBeLessThan(1e-5);
  });

  it('chunks to about 64 MiB of logits', () => {
    expect(logprobChunk(151_936, 'cpu')).toBe(110);
    expect(logprobChunk(50, 'cpu')).toBe(4096);
    expect(logprobChunk(1e9, 'cpu')).toBe(16);
    expect(logprobChunk(151_936, 'cuda:0')).toBe(1024);
    expect(logprobChunk(1e6, 'cuda:0')).toBe(157);
  });
});

describe('the others', () => {
  it('linear, embedding, rms norm, dropout', () => {
    expect(linear(tensor([[1, 2]]), tensor([[3, 4]]), tensor([5])).tolist()).toEqual([[16]]);
    expect(embedding(tensor([[1], [2]]), tensor([1n, 0n])).tolist()).toEqual([[2], [1]]);
    const x = tensor([[3, 4]]);
    for (const [i, value] of rmsNorm(x, tensor([1, 2]), 0)
      .numbers()
      .entries())
      expect(value).toBeCloseTo(([3, 8][i] as number) / Math.sqrt(12.5), 6);
    expect(rmsNorm(x.to('bfloat16'), ones([2], { dtype: 'bfloat16' }), 1e-6).dtype).toBe('bfloat16');
    expect(dropout(x, 0.5, false).tolist()).toEqual([[3, 4]]);
    seed(1);
    const dropped = dropout(ones([1000]), 0.25, true).numbers();
    expect(new Set(dropped.map((value) => value.toFixed(4)))).toEqual(new Set(['0.0000', '1.3333']));
  });
});

describe('linear', () => {
  const ownThreads = threads();
  afterEach(() => setThreads(ownThreads));

  it('is x·weightᵀ + bias for any number of rows, inputs and outputs, a row as if it were alone', () => {
    seed(1);
    for (const [outputs, inputs] of [
      [1, 3],
      [7, 5],
      [33, 18],
      [64, 50],
      [36, 64],
      [70, 1025],
    ] as const) {
      scope(() => {
        const [weight, bias] = [randn([outputs, inputs]), randn([outputs])];
        const all = randn([130, inputs]);
        const exact = all.to('float64').matmul(weight.to('float64').t()).add(bias.to('float64'));
        const alone = Array.from({ length: 48 }, (_, i) => linear(all.narrow(0, i, 1), weight, bias).numbers()).flat();
        for (const rows of [...Array.from({ length: 18 }, (_, i) => i + 1), 31, 48, 49, 100, 128, 129, 130]) {
          const result = linear(all.narrow(0, 0, rows), weight, bias);
          expect(spread(result, exact.narrow(0, 0, rows))).toBeLessThan(2e-6 * inputs + 1e-5);
          if (rows <= 48) expect(result.numbers()).toEqual(alone.slice(0, rows * outputs));
        }
        for (const count of [1, 3, 16]) {
          setThreads(count);
          for (const rows of [1, 2, 7, 17, 48])
            expect(linear(all.narrow(0, 0, rows), weight, bias).numbers()).toEqual(alone.slice(0, rows * outputs));
        }
        setThreads(ownThreads);
      });
    }
  });
});
