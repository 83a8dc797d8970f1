/** Gradients: against PyTorch's numbers, against finite differences, and the rules of the graph. */
import { describe, expect, it } from 'vitest';
import {
  aten,
  backwardAll,
  enableGrad,
  gradients,
  isGradEnabled,
  layerNorm,
  liveTensors,
  noGrad,
  ones,
  randn,
  rmsNorm,
  scope,
  seed,
  type Tensor,
  TensorError,
  tensor,
} from './index.ts';

const leaf = (data: Parameters<typeof tensor>[0], dtype: 'float32' | 'float64' = 'float32') =>
  tensor(data, { dtype }).requiresGrad_();

/** ∂f/∂x by central differences in f64, for every element of x. */
function differences(f: (x: Tensor) => Tensor, x: Tensor, step = 1e-6): number[] {
  const values = x.numbers();
  const at = (shifted: number[]) =>
    noGrad(() => scope(() => f(tensor(shifted, { dtype: 'float64', shape: x.shape })).item()));
  return values.map((value, i) => (at(values.with(i, value + step)) - at(values.with(i, value - step))) / (2 * step));
}

describe('leaves and backward', () => {
  it('gathers gradients in leaves only', () => {
    const x = leaf([2, 3]);
    const y = x.mul(x);
    expect([x.isLeaf, y.isLeaf, x.requiresGrad, y.requiresGrad, x.grad]).toEqual([true, false, true, true, null]);
    y.sum().backward();
    expect(x.grad?.tolist()).toEqual([4, 6]);
    expect(y.grad).toBeNull();
  });

  it('adds up until it is reset', () => {
    const x = leaf([1]);
    x.mul(3).sum().backward();
    x.mul(4).sum().backward();
    expect(x.grad?.item()).toBe(7);
    x.grad = null;
    expect(x.grad === null).toBe(true);
    x.mul(4).sum().backward();
    expect((x.grad as Tensor | null)?.item()).toBe(4);
    x.grad = tensor([10]);
    x.mul(4).sum().backward();
    expect(x.grad?.item()).toBe(14);
    expect(() => {
      x.grad = tensor([1, 2]);
    }).toThrow(/shape, dtype and device/);
  });

  it('takes an incoming gradient, and wants one where the output is no scalar', () => {
    const x = leaf([1, 2, 3]);
    const y = x.mul(x);
    expect(() => y.backward()).toThrow(/scalar outputs/);
    y.backward(tensor([1, 10, 100]));
    expect(x.grad?.tolist()).toEqual([2, 40, 600]);
    expect(() => x.mul(2).backward(tensor([1]))).toThrow(TensorError);
  });

  it('frees the graph unless told to retain it', () => {
    const x = leaf([3]);
    const y = x.mul(x).sum();
    y.backward(undefined, { retainGraph: true });
    y.backward();
    expect(x.grad?.item()).toBe(12);
    expect(() => y.backward()).toThrow(/second time/);
  });

  it('keeps the gradient in the middle when asked', () => {
    const x = leaf([2]);
    const y = x.mul(3).retainGrad();
    y.mul(y).sum().backward();
    expect(y.grad?.item()).toBe(12);
  });

  it('runs from several outputs at once', () => {
    const x = leaf([2]);
    const shared = x.mul(2);
    backwardAll([shared.mul(3), shared.mul(5)], [ones([1]), tensor([10])]);
    expect(x.grad?.item()).toBe(2 * 3 + 2 * 50);
    expect(() => backwardAll([x.mul(1)], [])).toThrow(/one incoming gradient per output/);
  });

  it('detach cuts', () => {
    const x = leaf([2]);
    x.mul(x.detach()).sum().backward();
    expect(x.grad?.item()).toBe(2);
    expect(x.detach().requiresGrad).toBe(false);
  });

  it('refuses what has no gradient', () => {
    expect(() => tensor([1n]).requiresGrad_()).toThrow(/requiresGrad_: .*floating point[\s\S]*given: int64\[1\]/);
    expect(() => tensor([1]).backward()).toThrow(/does not require grad/);
    const x = leaf([1, 2]);
    expect(() => x.add_(1)).toThrow(/in-place operation/);
    expect(() => x.mul(2).requiresGrad_(false)).toThrow(/detach\(\)/);
    const y = x.mul(2);
    y.add_(1);
    expect(() => y.sum().backward()).not.toThrow(); // the gradient of a product with a number does not need it
    const w = x.exp();
    w.add_(1);
    expect(() => w.sum().backward()).toThrow(/modified by an inplace operation/);
  });

  it('leaves no tensors behind', () => {
    const x = leaf([1, 2, 3]);
    x.grad = ones([3]);
    const before = liveTensors();
    for (let i = 0; i < 20; i++) scope(() => x.exp().sum().backward());
    expect(liveTensors()).toBe(before);
  });
});

describe('grad mode', () => {
  it('nests, and is restored after an exception', () => {
    const x = leaf([1]);
    expect(isGradEnabled()).toBe(true);
    noGrad(() => {
      expect(x.mul(2).requiresGrad).toBe(false);
      enableGrad(() => {
        expect(x.mul(2).requiresGrad).toBe(true);
        noGrad(() => expect(isGradEnabled()).toBe(false));
        expect(isGradEnabled()).toBe(true);
      });
      expect(isGradEnabled()).toBe(false);
    });
    expect(() =>
      noGrad(() => {
        throw new Error('inside');
      }),
    ).toThrow('inside');
    expect(() => noGrad(() => enableGrad(() => ones([2]).add(ones([3]))))).toThrow(TensorError);
    expect(isGradEnabled()).toBe(true);
  });

  it('refuses a promise, which would outlive it', () => {
    expect(() => noGrad(async () => 1)).toThrow(/synchronous/);
    expect(isGradEnabled()).toBe(true);
  });

  it('lets a leaf be changed in place without grad', () => {
    const x = leaf([1]);
    noGrad(() => x.add_(1));
    expect(x.item()).toBe(2);
  });
});

describe('gradients()', () => {
  it('gives them as values and leaves .grad alone', () => {
    const [x, y, z] = [leaf([2]), leaf([3]), leaf([4])];
    const [dx, dy, dz] = gradients([x.mul(y).mul(y).sum()], [x, y, z]);
    expect([dx?.item(), dy?.item(), dz]).toEqual([9, 12, null]);
    expect(x.grad).toBeNull();
  });

  it('takes an incoming gradient', () => {
    const x = leaf([1, 2]);
    expect(gradients([x.mul(x)], [x], { incoming: [tensor([1, 10])] })[0]?.tolist()).toEqual([2, 40]);
  });

  it('differentiates twice with createGraph', () => {
    const x = leaf([2], 'float64');
    const [first] = gradients([x.pow(4).sum()], [x], { createGraph: true });
    expect(first?.item()).toBe(32); // 4x³
    const [second] = gradients([first as Tensor], [x], { createGraph: true });
    expect(second?.item()).toBe(48); // 12x²
    const [third] = gradients([second as Tensor], [x]);
    expect(third?.item()).toBe(48); // 24x
  });

  it('says what it was given when it cannot', () => {
    const x = leaf([2]);
    expect(() => gradients([x.mul(2)], [tensor([1])])).toThrow(
      /gradients: .*require[\s\S]*given: float32\[1\], for, float32\[1\]/,
    );
    expect(() => gradients([x.mul(2)], [])).toThrow(/gradients/);
  });
});

const EXPECT = {
  sum: 1.1129597,
  x: [0.4546429, -0.1948467, -0.2597962, -0.1717916, 0.0458115, 0.1259799],
  weight: [0.0242908, 2.589745, 1.9996355],
  bias: [0.8155143, 1.2329196, -0.1753721],
  attention: 0.2839472,
  q: [0.0, 0.0, 0.3537245, -0.0682674, -0.2323237, -0.370154],
  k: [-0.16986, 0.0666415, 0.3537349, 0.1663416, -0.1838749, -0.2329831],
  v: [-0.8252252, 1.0047493, 0.6641786, 0.6785653, -0.2582749, -0.6960986],
};

describe('against PyTorch 2.13', () => {
  it('layer norm, gelu and a product', () => {
    const x = leaf([
      [0.5, -1.5, 2],
      [0.25, 3, -0.75],
    ]);
    const weight = leaf([1, 0.5, -0.5]);
    const bias = leaf([0.1, 0.2, 0.3]);
    const y = layerNorm(x, weight, bias, 1e-5).gelu();
    y.mul(
      tensor([
        [1, -2, 3],
        [0.5, 1.5, -1],
      ]),
    )
      .sum()
      .backward();
    expect(y.sum().item()).toBeCloseTo(EXPECT.sum, 5);
    close(x.grad, EXPECT.x);
    close(weight.grad, EXPECT.weight);
    close(bias.grad, EXPECT.bias);
  });

  it('attention', () => {
    const [q, k, v] = [0, 1, 2].map((i) => leaf(Array.from({ length: 6 }, (_, j) => Math.sin(i * 6 + j))).view(3, 2));
    const [leafQ, leafK, leafV] = [q, k, v].map((item) => (item as Tensor).detach().requiresGrad_()) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const scores = leafQ.matmul(leafK.t()).div(Math.SQRT2);
    const out = scores
      .add(ones([3, 3]).triu(1).mul(-1e9))
      .softmax(-1)
      .matmul(leafV);
    out.square().sum().backward();
    expect(out.sum().item()).toBeCloseTo(EXPECT.attention, 5);
    close(leafQ.grad, EXPECT.q);
    close(leafK.grad, EXPECT.k);
    close(leafV.grad, EXPECT.v);
  });
});

describe('against finite differences', () => {
  const cases: [string, (x: Tensor) => Tensor][] = [
    ['log softmax', (x) => x.logSoftmax(-1).at(':', 1).sum()],
    [
      'silu gate',
      (x) =>
        x
          .silu()
          .mul(aten('roll', x, [1], [1]))
          .sum(),
    ],
    [
      'rms norm',
      (x) =>
        rmsNorm(x, tensor([1, 2, 3, 4], { dtype: 'float64' }), 1e-6)
          .pow(3)
          .sum(),
    ],
    ['logsumexp of a product', (x) => x.matmul(x.t()).logsumexp(1).sum()],
    ['log sigmoid', (x) => x.logSigmoid().mul(x).mean()],
    [
      'gather and clamp',
      (x) =>
        x
          .clamp(-0.5, 0.9)
          .gather(1, tensor([[0n], [3n], [1n]]))
          .exp()
          .sum(),
    ],
    ['cumulative sum and norm', (x) => x.cumsum(1).norm().add(x.std())],
  ];

  it.each(cases)('%s', (_, f) => {
    seed(3);
    const x = randn([3, 4], { dtype: 'float64' }).requiresGrad_();
    f(x).backward();
    const expected = differences(f, x);
    for (const [i, value] of (x.grad as Tensor).numbers().entries())
      expect(value).toBeCloseTo(expected[i] as number, 6);
  });
});

function close(actual: Tensor | null, expected: number[]): void {
  const values = (actual as Tensor).numbers();
  expect(values).toHaveLength(expected.length);
  for (const [i, value] of expected.entries()) expect(values[i]).toBeCloseTo(value, 5);
}
