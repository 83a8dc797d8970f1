/** AdamW against torch.optim.AdamW 2.13, its f32 masters, and its state on disk. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../errors.ts';
import {
  aten,
  findOperator,
  keep,
  liveTensors,
  noGrad,
  ones,
  openSafetensors,
  randn,
  scope,
  seed,
  type Tensor,
  tensor,
  writeSafetensors,
} from '../tensor/index.ts';
import { AdamW, type AdamWOptions } from './adamw.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-adamw-'));
afterAll(() => rmSync(folder, { recursive: true }));

const sines = (i: number, shape: number[]) =>
  tensor(
    Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, j) => Math.sin(i * 10 + j)),
    { shape },
  );
const parameter = (i: number, shape: number[]) => sines(i, shape).requiresGrad_();

function close(actual: Tensor, expected: number[], digits = 6): void {
  for (const [i, value] of actual.numbers().entries()) expect(value).toBeCloseTo(expected[i] as number, digits);
}

describe.each([true, false])('fused: %s', (fused) => {
  it('updates as torch.optim.AdamW does, with and without decay', () => {
    const w = parameter(0, [2, 3]);
    const b = parameter(1, [3]);
    const optimiser = new AdamW(
      [
        ['w', w],
        ['b', b],
      ],
      { lr: 0.01, betas: [0.9, 0.95], weightDecay: 0.1, fused },
    );
    for (let t = 0; t < 5; t++) {
      w.grad = tensor(
        Array.from({ length: 6 }, (_, j) => Math.cos(t * 7 + j)),
        { shape: [2, 3] },
      );
      b.grad = tensor(Array.from({ length: 3 }, (_, j) => Math.cos(t * 3 + j) * 1e-3));
      optimiser.step();
      if (t === 0) {
        close(w, [-0.010000001, 0.83062953, 0.91838813, 0.15097889, -0.74604571, -0.96796536]);
        close(b, [-0.554021, -1.0099901, -0.52657318]);
      }
    }
    close(w, [-0.031644028, 0.83854234, 0.95085371, 0.17505139, -0.74815649, -1.0000591]);
    close(b, [-0.55839849, -1.0127553, -0.51967829]);
    expect(optimiser.steps).toBe(5);
  });

  it('starts the bias correction of a parameter with its own first gradient', () => {
    const w = parameter(0, [2]);
    const b = parameter(1, [2]);
    const optimiser = new AdamW(
      [
        ['w', w],
        ['b', b],
      ],
      { lr: 0.1, fused },
    );
    for (let t = 0; t < 4; t++) {
      w.grad = tensor([t + 1, -2 * (t + 1)]);
      if (t >= 2) b.grad = tensor([0.5 * (t + 1), 0.25 * (t + 1)]);
      optimiser.step();
    }
    close(w, [-0.38835931, 1.2298304]);
    close(b, [-0.74375343, -1.1997225]);
  });
});

it('fused and foreach agree', () => {
  const run = (fused: boolean) => {
    const w = parameter(0, [8, 8]);
    const optimiser = new AdamW([['w', w]], { lr: 1e-2, weightDecay: 0.01, fused });
    for (let t = 0; t < 20; t++) {
      w.grad = sines(t + 1, [8, 8]);
      optimiser.step();
    }
    return w;
  };
  // on libtorch 1.13 both are the foreach form
  expect(findOperator('_foreach_add_.List')).not.toBeNull();
  close(run(true), run(false).numbers(), 6);
});

describe('half precision', () => {
  const train = (dtype: 'bfloat16' | 'float16', steps: number) => {
    const w = ones([4]).to(dtype).requiresGrad_();
    const optimiser = new AdamW([['w', w]], { lr: 1e-6 });
    for (let t = 0; t < steps; t++) {
      w.grad = ones([4]).to(dtype);
      optimiser.step();
    }
    return { w, optimiser };
  };

  it('an lr of 1e-6 moves the master, and in the end the weight', () => {
    const path = join(folder, 'master.safetensors');
    const { w, optimiser } = train('bfloat16', 10);
    expect(w.numbers()).toEqual([1, 1, 1, 1]); // far below 2⁻⁹, half of bf16's unit below 1
    optimiser.save(path);
    using file = openSafetensors(path);
    expect(file.info('w.master').dtype).toBe('float32');
    close(file.tensor('w.master'), [1 - 1e-5, 1 - 1e-5, 1 - 1e-5, 1 - 1e-5]);
    expect(train('bfloat16', 2100).w.numbers()).toEqual([0.99609375, 0.99609375, 0.99609375, 0.99609375]); // 2 100·10⁻⁶ > 2⁻⁹
    expect(train('float16', 600).w.numbers()[0]).toBe(1 - 2 ** -11);
  });

  it('the same update in plain bf16 goes nowhere, ever', () => {
    const w = ones([4], { dtype: 'bfloat16' });
    for (let t = 0; t < 3000; t++) w.sub_(1e-6);
    expect(w.numbers()).toEqual([1, 1, 1, 1]);
  });

  it('keeps f32 and f64 as they are', () => {
    for (const dtype of ['float32', 'float64'] as const) {
      const w = ones([1]).to(dtype).requiresGrad_();
      const optimiser = new AdamW([['w', w]], { lr: 0.5 });
      w.grad = ones([1]).to(dtype);
      optimiser.step();
      expect(w.item()).toBeCloseTo(0.5, 6);
      expect(w.dtype).toBe(dtype);
    }
  });
});

describe('its state', () => {
  const make = (dtype: 'float32' | 'bfloat16', options: Partial<AdamWOptions> = {}) => {
    seed(1);
    const [w, b] = [randn([3, 5], { dtype }).requiresGrad_(), randn([5], { dtype }).requiresGrad_()];
    return {
      w,
      b,
      optimiser: new AdamW(
        [
          ['w', w],
          ['b', b],
        ],
        { lr: 0.02, weightDecay: 0.1, ...options },
      ),
    };
  };
  const step = ({ w, b, optimiser }: ReturnType<typeof make>, t: number) => {
    w.grad = sines(t, [3, 5]).to(w.dtype);
    if (t > 0) b.grad = sines(t + 50, [5]).to(b.dtype);
    optimiser.step();
  };

  it.each(['float32', 'bfloat16'] as const)('%s: saved and loaded, it goes on bit for bit', (dtype) => {
    const path = join(folder, `${dtype}.safetensors`);
    const whole = make(dtype);
    for (let t = 0; t < 6; t++) step(whole, t);

    const first = make(dtype);
    for (let t = 0; t < 3; t++) step(first, t);
    first.optimiser.save(path);
    const second = make(dtype);
    noGrad(() => {
      second.w.copy_(first.w);
      second.b.copy_(first.b);
    });
    second.optimiser.load(path);
    expect(second.optimiser.steps).toBe(3);
    for (let t = 3; t < 6; t++) step(second, t);
    expect(second.w.data()).toEqual(whole.w.data());
    expect(second.b.data()).toEqual(whole.b.data());
  });

  it('refuses one that does not fit, naming every fault, and stays as it was', () => {
    const path = join(folder, 'faults.safetensors');
    const own = make('float32');
    step(own, 1);
    const before = own.w.numbers();
    const other = new AdamW(
      [
        ['w', parameter(0, [1])],
        ['c', parameter(1, [5])],
      ],
      { lr: 0.1 },
    );
    other.save(path);
    expect(() => own.optimiser.load(path)).toThrow(
      /"w.exp_avg" is float32\[1\], expected float32\[3,5\].*"b.exp_avg" is missing.*"c.exp_avg" is of no parameter here/,
    );
    expect(() => own.optimiser.load(path)).toThrow(UserError);
    expect(own.optimiser.steps).toBe(1);
    expect(own.w.numbers()).toEqual(before);
    writeSafetensors(path, [['w.exp_avg', ones([1])]]);
    expect(() => own.optimiser.load(path)).toThrow(/not an optimiser's state/);
    writeSafetensors(path, [['w.exp_avg', ones([1])]], { steps: '1', parameter_steps: '{"a":1}' });
    expect(() => own.optimiser.load(path)).toThrow(/not an optimiser's state/);
  });
});

it('updates an element to the same bits wherever it stands, as parameters that are dealt over processes need', () => {
  const size = 3000;
  seed(5);
  const [start, ...gradients] = Array.from({ length: 5 }, () => keep(randn([size]))) as [Tensor, ...Tensor[]];
  const trained = (cuts: readonly number[]) =>
    scope(() => {
      const ends = [...cuts.slice(1), size];
      const part = (of: Tensor, i: number) =>
        of.narrow(0, cuts[i] as number, (ends[i] as number) - (cuts[i] as number));
      const named = cuts.map((_, i): [string, Tensor] => [`${i}`, part(start, i).clone().requiresGrad_()]);
      using optimiser = new AdamW(named, { lr: 0.01, weightDecay: 0.1, decays: () => true });
      for (const gradient of gradients) {
        for (const [i, [, parameter]] of named.entries()) parameter.grad = part(gradient, i).clone();
        optimiser.step();
      }
      return named.flatMap(([, parameter]) => [...parameter.numbers()]);
    });
  const whole = trained([0]);
  // Now and then libtorch's fused kernel rounds the last elements, those that do not fill a vector register,
  // differently.
  for (let length = 1; length < 40; length++)
    expect(trained(Array.from({ length: Math.ceil(size / length) }, (_, i) => i * length))).toEqual(whole);
  for (const each of [start, ...gradients]) each.dispose();
});

describe.each([true, false])('gradients converted in parts, fused: %s', (fused) => {
  it('gives the bits of one conversion, whatever the parts', () => {
    const shapes = { embedding: [7, 5], vector: [11], small: [2, 2] };
    const trained = (convertedAtOnce?: number) =>
      scope(() => {
        const named = Object.entries(shapes).map(([name, shape], i): [string, Tensor] => [
          name,
          sines(i, shape).to('bfloat16').requiresGrad_(),
        ]);
        using optimiser = new AdamW(named, { lr: 0.1, weightDecay: 0.1, fused, convertedAtOnce });
        for (let t = 0; t < 3; t++) {
          for (const [i, [, parameter]] of named.entries())
            parameter.grad = sines(10 * t + i, [...parameter.shape]).to('bfloat16');
          optimiser.step();
        }
        return named.map(([, parameter]) => parameter.numbers());
      });
    const whole = trained();
    for (const most of [1, 4, 12, 30]) expect(trained(most)).toEqual(whole);
  });
});

describe('wrong use', () => {
  it.each([
    [{ lr: -1 }],
    [{ lr: Number.NaN }],
    [{ lr: 1, eps: 0 }],
    [{ lr: 1, weightDecay: -0.1 }],
    [{ lr: 1, betas: [0.9, 1] as const }],
  ])('refuses %j', (options) => {
    expect(() => new AdamW([['w', ones([1])]], options)).toThrow(UserError);
  });

  it('refuses integers and a parameter given twice', () => {
    const w = ones([1]);
    expect(() => new AdamW([['ids', tensor([1n])]], { lr: 1 })).toThrow(/"ids" is int64/);
    expect(
      () =>
        new AdamW(
          [
            ['a', w],
            ['b', w],
          ],
          { lr: 1 },
        ),
    ).toThrow(/"b" is given twice/);
  });

  it('leaves parameters without a gradient alone, and no tensors behind', () => {
    const w = parameter(0, [2]);
    const optimiser = new AdamW([['w', w]], { lr: 1, weightDecay: 1, decays: () => true });
    optimiser.step();
    expect(w.numbers()).toEqual(sines(0, [2]).numbers());
    w.grad = ones([2]);
    const before = liveTensors();
    for (let i = 0; i < 5; i++) optimiser.step();
    expect(liveTensors()).toBe(before);
    optimiser.zeroGrad();
    expect(w.grad).toBeNull();
    optimiser.dispose();
    expect(liveTensors()).toBe(before - 2);
  });
});

it('learns: a line through points', () => {
  seed(0);
  const w = tensor([0, 0]).requiresGrad_();
  const optimiser = new AdamW([['w', w]], { lr: 0.05 });
  const x = randn([64, 1]);
  const y = x.mul(3).add(-1);
  for (let i = 0; i < 400; i++) {
    scope(() => {
      x.mul(w.at(0)).add(w.at(1)).sub(y).square().mean().backward();
      optimiser.step();
      optimiser.zeroGrad();
    });
  }
  close(w, [3, -1], 2);
});

describe('our own kernel for f32 on CPUs', () => {
  const lr = 0.01;
  const [beta1, beta2, eps, decay] = [0.9, 0.95, 1e-8, 0.1];
  const settings = (steps: number) => [lr, beta1, beta2, decay, eps, steps] as const;
  const run = (steps: number, [p, g, m, v]: Tensor[]) =>
    noGrad(() => aten('attune::adamw_', [p], [g], [m], [v], ...settings(steps)));
  const copies = (tensors: Tensor[]) => tensors.map((each) => each.clone());

  it('gives the numbers of the formula in f64, in whole blocks and in the rest of one', () => {
    scope(() => {
      seed(3);
      const size = 200;
      const [p, g] = [randn([size]), randn([size])];
      const [m, v] = [randn([size]).mul(0.1), randn([size]).square()];
      const [p0, g0, m0, v0] = [p, g, m, v].map((each) => each.numbers()) as number[][];
      run(7, [p, g, m, v]);
      const expected = (p0 as number[]).map((weight, i) => {
        const gradient = g0?.[i] as number;
        const average = beta1 * (m0?.[i] as number) + (1 - beta1) * gradient;
        const square = beta2 * (v0?.[i] as number) + (1 - beta2) * gradient ** 2;
        const step = average / (1 - beta1 ** 7) / (Math.sqrt(square / (1 - beta2 ** 7)) + eps);
        return { weight: weight - lr * decay * weight - lr * step, average, square };
      });
      close(
        p,
        expected.map(({ weight }) => weight),
      );
      close(
        m,
        expected.map(({ average }) => average),
      );
      close(
        v,
        expected.map(({ square }) => square),
        5,
      );
    });
  });

  it('gives an element the same bits wherever it lies', () => {
    scope(() => {
      seed(4);
      const size = 1000;
      const whole = [randn([size]), randn([size]), randn([size]), randn([size]).square()];
      const dealt = copies(whole);
      run(3, whole);
      for (const [from, to] of [
        [0, 1],
        [1, 334],
        [334, 1000],
      ] as const)
        run(
          3,
          dealt.map((each) => each.narrow(0, from, to - from)),
        );
      for (const [i, each] of whole.entries()) expect(dealt[i]?.numbers()).toEqual(each.numbers());
    });
  });

  it('updates tensors that are not contiguous, and counts as a write', () => {
    scope(() => {
      seed(5);
      const plain = [randn([8, 5]), randn([8, 5]), randn([8, 5]), randn([8, 5]).square()];
      const turned = plain.map((each) => each.transpose(0, 1).contiguous().transpose(0, 1));
      const writes = (each: Tensor) => aten<number>('attune::count_writes', [each]);
      const before = [...plain, ...turned].map(writes);
      run(1, plain);
      run(1, turned);
      for (const [i, each] of plain.entries()) expect(turned[i]?.numbers()).toEqual(each.numbers());
      const after = [...plain, ...turned].map(writes);
      for (const i of [0, 2, 3, 4, 6, 7]) expect(after[i]).toBeGreaterThan(before[i] as number);
    });
  });

  it('refuses what it cannot update', () => {
    scope(() => {
      const four = () => [ones([4]), ones([4]), ones([4]), ones([4])];
      const [p, g, m, v] = four() as [Tensor, Tensor, Tensor, Tensor];
      expect(() => run(1, [p, ones([5]), m, v])).toThrow(/shape/);
      expect(() => run(1, [p, g.to('float64'), m, v])).toThrow(/f32/);
      expect(() => run(0, [p, g, m, v])).toThrow(/from 1/);
      expect(() => aten('attune::adamw_', [p], [g, g], [m], [v], ...settings(1))).toThrow(/length/);
      const trained = ones([4]).requiresGrad_();
      expect(() => aten('attune::adamw_', [trained], [g], [m], [v], ...settings(1))).toThrow(/without gradient/);
    });
  });
});

it('refuses an option that it does not know', () => {
  const misspelt = { lr: 1, weightdecay: 0.1 } as never;
  expect(() => new AdamW([['w', ones([2])]], misspelt)).toThrow(/"weightdecay". Did you mean "weightDecay"/);
});
