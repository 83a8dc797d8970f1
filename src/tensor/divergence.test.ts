/** linear_divergence against numbers of PyTorch 2.13, the direct computation, and finite differences. */
import { describe, expect, it } from 'vitest';
import {
  type DivergenceOptions,
  gradients,
  type HeadRows,
  linearDivergence,
  liveTensors,
  noGrad,
  randint,
  randn,
  scope,
  seed,
  type Tensor,
  tensor,
} from './index.ts';

const sines = (i: number, shape: number[], scale = 1) =>
  tensor(
    Float64Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, j) => scale * Math.sin(i * 10 + j * 1.7)),
    { shape },
  );

const heads = (dtype: 'float64' | 'float32' = 'float64') => ({
  student: { hidden: sines(0, [4, 3]).to(dtype), weight: sines(1, [6, 3], 2).to(dtype) },
  teacher: { hidden: sines(2, [4, 5]).to(dtype), weight: sines(3, [6, 5], 2).to(dtype) },
  targets: tensor([0n, 5n, -1n, 2n]),
});

/** The same by ordinary operators, with all logits in memory. */
function whole(student: HeadRows, teacher: HeadRows, { temperature = 1, reverse = false, top = 0 }: DivergenceOptions) {
  const logSoftmax = ({ hidden, weight }: HeadRows) => {
    const wide = hidden.dtype === 'float64' ? 'float64' : 'float32';
    return hidden.to(wide).matmul(weight.to(wide).t()).div(temperature).logSoftmax(-1);
  };
  const [p, q] = [logSoftmax(student), logSoftmax(teacher).detach()];
  if (reverse) return p.exp().mul(p.sub(q)).sum(-1);
  if (top === 0) return q.exp().mul(q.sub(p)).sum(-1);
  const { values, ids } = best(q, top);
  const rest = (logprobs: Tensor) => logprobs.exp().sum(-1).sub(logprobs.gather(1, ids).exp().sum(-1)).log();
  const others = rest(q)
    .exp()
    .mul(rest(q).sub(rest(p)));
  return values
    .exp()
    .mul(values.sub(p.gather(1, ids)))
    .sum(-1)
    .add(others);
}

/** The likeliest tokens of each row. */
function best(q: Tensor, top: number): { values: Tensor; ids: Tensor } {
  const rows = q.tolist() as number[][];
  const ids = rows.map((row) =>
    Array.from(row.keys())
      .sort((a, b) => (row[b] as number) - (row[a] as number))
      .slice(0, top),
  );
  const index = tensor(BigInt64Array.from(ids.flat(), BigInt), { shape: [rows.length, top] });
  return { values: q.gather(1, index), ids: index };
}

const close = (actual: Tensor | null | undefined, wanted: ArrayLike<number>, digits: number) =>
  Array.from((actual as Tensor).numbers()).forEach((value, i) => {
    expect(value, `[${i}]`).toBeCloseTo(wanted[i] as number, digits);
  });

// torch.nn.functional.kl_div in float64 at a temperature of 0.7; the rows' weights in the sum are 1, −2, 3 and 0.5
const numbers: [string, DivergenceOptions, number[], number[], number[]][] = [
  [
    'forward',
    {},
    [2.593979654, 3.497684686, 5.617660173, 4.735991611],
    [
      1.316663108, 2.01328474, -1.835464417, 3.35787504, -3.433046939, -2.473216646, -5.781069086, -8.472888104,
      7.964439052, 1.465909081, -1.535594181, -1.070203369,
    ],
    [
      -0.0639931255, -0.314794734, 0.1451122621, 0.1514588268, -0.8785683427, 0.07493856081, -0.8240990287,
      0.5230467536, 0.6893156397, 2.152671653, 2.945107957, -2.911593543, 1.507005173, -1.319789439, -1.166909967,
      -2.923043498, -0.9550021954, 3.169137048,
    ],
  ],
  [
    'reverse',
    { reverse: true },
    [10.87144535, 7.818129005, 5.814459067, 3.187042128],
    [
      4.279690486, 2.540692185, -4.934398886, 1.143266972, -15.17888022, 2.768163321, -4.757236878, 5.128904437,
      3.435574681, -1.67558685, 0.6577460296, 1.506092941,
    ],
    [
      5.578772786, 4.975553048, -6.860918019, -0.3578540871, 0.9269523631, 0.1189886702, 0.07652357033, -0.5347876017,
      0.06128530585, -0.06701066778, 2.870537397, -0.6726952108, 6.166937928, -5.778372725, -4.677914905, -11.39736953,
      -2.459882481, 12.03125416,
    ],
  ],
  [
    'top 2 and the rest',
    { top: 2 },
    [2.593934144, 3.486067572, 5.613568216, 4.735755099],
    [
      1.316703773, 2.013231544, -1.835491374, 3.349263734, -3.403396995, -2.472245805, -5.771210805, -8.475640176,
      7.95528995, 1.466308289, -1.535395972, -1.070653654,
    ],
    [
      -0.05398570119, -0.3200563017, 0.1364606859, 0.1489991834, -0.8807463723, 0.07795945851, -0.8240760242,
      0.5229247068, 0.6893240854, 2.153561711, 2.944606129, -2.912354286, 1.496035003, -1.313970646, -1.157439236,
      -2.920534172, -0.9527575164, 3.166049293,
    ],
  ],
];

describe.each(numbers)('linearDivergence, %s', (_, options, divergences, ofHidden, ofWeight) => {
  const given = { ...options, temperature: 0.7 };
  const rowWeights = () => tensor(Float64Array.of(1, -2, 3, 0.5));

  it.each([1, 3, 4, 512])('gives the numbers of PyTorch in chunks of %i rows', (chunk) => {
    const { student, teacher, targets } = heads();
    const [hidden, weight] = [student.hidden.requiresGrad_(), student.weight.requiresGrad_()];
    const made = linearDivergence(student, teacher, targets, { ...given, chunk });
    made.divergence.mul(rowWeights()).sum().backward();
    close(made.divergence, divergences, 8);
    close(hidden.grad, ofHidden, 7);
    close(weight.grad, ofWeight, 7);
    close(made.teacherLogp, [-15.77354764, -0.396894097, 0, -7.962517256], 8);
    expect(made.agrees.tolist()).toEqual([0, 1, 0, 0]);
  });

  it('has the same gradient for the hidden states alone, without a second pass', () => {
    for (const frozen of [true, false]) {
      const { student, teacher, targets } = heads();
      student.hidden.requiresGrad_();
      student.weight.requiresGrad_(!frozen);
      const { divergence } = linearDivergence(student, teacher, targets, { ...given, chunk: 3 });
      divergence.mul(rowWeights()).sum().backward();
      close(student.hidden.grad, ofHidden, 7);
    }
    const { student, teacher, targets } = heads();
    student.weight.requiresGrad_();
    linearDivergence(student, teacher, targets, given).divergence.mul(rowWeights()).sum().backward();
    close(student.weight.grad, ofWeight, 7);
  });

  it('has the gradient that differences give', () => {
    const { student, teacher, targets } = heads();
    const value = (hidden: Tensor, weight: Tensor) =>
      linearDivergence({ hidden, weight }, teacher, targets, given).divergence.mul(rowWeights()).sum();
    const leaves = [student.hidden, student.weight].map((each) => each.clone().requiresGrad_()) as [Tensor, Tensor];
    const found = gradients([value(...leaves)], leaves) as [Tensor, Tensor];
    const step = 1e-6;
    for (const [which, base] of [student.hidden, student.weight].entries()) {
      const flat = Float64Array.from(base.numbers());
      const wanted = flat.map((_, i) => {
        const at = (by: number) => {
          const moved = tensor(flat.with(i, (flat[i] as number) + by), { shape: base.shape });
          return value(which === 0 ? moved : student.hidden, which === 1 ? moved : student.weight).item();
        };
        return (at(step) - at(-step)) / (2 * step);
      });
      close(found[which], wanted, 6);
    }
  });

  it.each(['float32', 'bfloat16'] as const)('is the whole computation in %s', (dtype) => {
    seed(4);
    const [rows, words] = [70, 333];
    const drawn = () => ({
      student: { hidden: randn([rows, 32]).to(dtype), weight: randn([words, 32]).mul(0.4).to(dtype) },
      teacher: { hidden: randn([rows, 48]).to(dtype), weight: randn([words, 48]).mul(0.4).to(dtype) },
      targets: randint(0, words, [rows]),
    });
    const { student, teacher, targets } = drawn();
    const by = randn([rows]).div(rows);
    const leaves = [student.hidden.requiresGrad_(), student.weight.requiresGrad_()];
    const made = linearDivergence(student, teacher, targets, { ...given, chunk: 16 });
    const ours = gradients([made.divergence], leaves, { incoming: [by] }) as Tensor[];
    const wide = leaves.map((each) => each.detach().to('float64').requiresGrad_()) as [Tensor, Tensor];
    const frozen = { hidden: teacher.hidden.to('float64'), weight: teacher.weight.to('float64') };
    const expected = whole({ hidden: wide[0], weight: wide[1] }, frozen, given);
    const theirs = gradients([expected], wide, { incoming: [by.to('float64')] }) as Tensor[];
    const apart = (a: Tensor, b: Tensor) => {
      const gap = a.to('float64').sub(b).abs().max().item() as number;
      return gap / Math.max(1e-12, b.abs().max().item() as number);
    };
    // libtorch 1.13 widens the products of bfloat16, later versions round their results
    expect(apart(made.divergence, expected)).toBeLessThan(dtype === 'float32' ? 1e-5 : 2e-2);
    for (const [i, gradient] of ours.entries())
      expect(apart(gradient, theirs[i] as Tensor)).toBeLessThan(dtype === 'float32' ? 1e-5 : 2e-2);
  });

  it('is 0 where both are the same, and so is its gradient', () => {
    for (const dtype of ['float64', 'float32'] as const) {
      const { student, targets } = heads(dtype);
      const leaves = [student.hidden.requiresGrad_(), student.weight.requiresGrad_()];
      const twin = { hidden: student.hidden.detach().clone(), weight: student.weight.detach().clone() };
      const { divergence, teacherLogp } = linearDivergence(student, twin, targets, given);
      expect(divergence.abs().max().item()).toBeLessThan(dtype === 'float64' ? 1e-15 : 1e-6);
      const found = gradients([divergence.sum()], leaves) as Tensor[];
      for (const each of found) expect(each.abs().max().item()).toBeLessThan(dtype === 'float64' ? 1e-14 : 1e-5);
      expect(teacherLogp.requiresGrad).toBe(false);
    }
  });

  it('keeps nothing but its three results, and no graph where no gradient is wanted', () => {
    const { student, teacher, targets } = heads();
    scope(() => {
      const before = liveTensors();
      const made = noGrad(() => linearDivergence(student, teacher, targets, given));
      expect(liveTensors() - before).toBe(3);
      expect(made.divergence.requiresGrad).toBe(false);
    });
  });
});

describe('the likeliest tokens and the rest', () => {
  const of = (top: number) =>
    scope(() => {
      const { student, teacher, targets } = heads();
      return Array.from(linearDivergence(student, teacher, targets, { top }).divergence.numbers());
    });

  it('are never further apart than the whole, and nearer to it the more there are', () => {
    const all = of(0);
    let before = all.map(() => 0);
    for (const top of [1, 2, 3, 4]) {
      const some = of(top);
      some.forEach((value, i) => {
        expect(value).toBeGreaterThanOrEqual((before[i] as number) - 1e-12);
        expect(value).toBeLessThanOrEqual((all[i] as number) + 1e-12);
      });
      before = some;
    }
  });

  it('are the whole where no two tokens are left for the rest', () => {
    for (const top of [5, 6, 100]) expect(of(top)).toEqual(of(0));
  });

  it('stay finite where a student gives the rest no probability that a number can hold', () => {
    const peaked = (id: number) =>
      tensor(
        Array.from({ length: 6 }, (_, i) => (i === id ? 300 : 0)),
        { shape: [6, 1] },
      );
    const one = () => tensor([[1]]);
    const student = { hidden: one().requiresGrad_(), weight: peaked(0) };
    const teacher = { hidden: one(), weight: peaked(0).mul(0.003) };
    const { divergence } = linearDivergence(student, teacher, tensor([0n]), { top: 1 });
    const [gradient] = gradients([divergence.sum()], [student.hidden]) as [Tensor];
    for (const each of [divergence, gradient]) expect(Number.isFinite(each.item())).toBe(true);
    expect(divergence.item()).toBeGreaterThan(100);
  });
});

it('refuses what does not fit together', () => {
  const { student, teacher, targets } = heads();
  const other = { hidden: teacher.hidden, weight: sines(3, [7, 5]) };
  const calls: [() => unknown, RegExp][] = [
    [() => linearDivergence(student, other, targets), /vocabularies differ/],
    [() => linearDivergence(student, teacher, targets.narrow(0, 0, 3)), /one target per row/],
    [() => linearDivergence(student, teacher, targets, { temperature: 0 }), /temperature/],
    [() => linearDivergence(student, teacher, targets, { top: -1 }), /top is 0 or more/],
    [() => linearDivergence(student, teacher, targets, { top: 2, reverse: true }), /no top is taken/],
    [() => linearDivergence(heads('float32').student, teacher, targets), /double precision/],
  ];
  for (const [call, message] of calls) expect(call).toThrow(message);
});
