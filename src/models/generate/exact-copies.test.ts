/**
 * Decoding from lower-bit copies of a float32 model's matrices: the same bits as from the matrices themselves, and
 * never from an old copy.
 */
import { describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { AdamW, quantTypes } from '../../nn/index.ts';
import { aten, liveTensors, noGrad, scope, type Tensor, tensor, zeros } from '../../tensor/index.ts';
import { addLora, initModel, packSequences, Sampler } from '../index.ts';
import { ExactCopies } from '../weights/exact-copies.ts';
import {
  cacheOf,
  disposable,
  exact,
  firstLogits,
  round,
  rowsThatDiffer,
  scatterFar,
  shapes,
  sizesOfAll,
  written,
  writtenPlainly,
} from './exact-copies.test-support.ts';
import { DecodePlan } from './plan.ts';
import { ruleTensors } from './sampling.ts';
import { filled, SHAPE } from './small-model.test-support.ts';
import { Stepper } from './stepper.ts';

/** Whether this CPU gains from copies in 12 and 28 bits; others use copies in 16. */
const shortens = scope(() => aten<Tensor>('attune::exact_shorts', zeros([16, 8])).numel > 0);
/** Bits per weight in a copy. */
const bitsOf = (copy: Tensor | null) => (copy?.dtype === 'int32' ? copy.numbers()[1] : copy?.dtype);
const bytesOf = (copy: Tensor | null) => (copy === null ? 0 : copy.numel * (copy.dtype === 'int32' ? 4 : 2));
const [ofHalves, ofOthers] = shortens ? [12, 28] : ['bfloat16', undefined];
/** Changes the weights in a copy, to see which copy is read. */
const spoil = (copy: Tensor | null) => {
  if (copy !== null)
    noGrad(() =>
      scope(
        () =>
          void copy
            .view(-1)
            .narrow(0, copy.numel - 24, 24)
            .zero_(),
      ),
    );
};
describe('a float32 model of bf16 numbers', () => {
  for (const [name, config] of Object.entries(shapes))
    it(`writes the same with copies and without, to the bit: ${name}`, async () => {
      using model = exact(config);
      for (const rows of [1, 2, 3, 4, 5, 8, 9, 13, 16, 17]) {
        using sampler = new Sampler(model, { slots: rows });
        expect(await written(sampler, rows)).toEqual(await writtenPlainly(model, rows));
      }
    });

  it.each(quantTypes)("has a copy of the vocabulary's matrix alone where the others are %s", async (quantType) => {
    using model = initModel({ ...SHAPE, model_type: 'qwen3', hidden_size: 64 }, { seed: 1, quantType });
    round(model);
    using halves = disposable(ExactCopies.of(model.decoder) as ExactCopies);
    halves.refresh(0);
    expect(bitsOf(halves.copyOf(model.decoder.headWeight))).toBe(ofHalves);
    expect(halves.bytes).toBeLessThan(2.1 * SHAPE.vocab_size * 64);
    using sampler = new Sampler(model, { slots: 1 });
    expect(await written(sampler, 1)).toEqual(await writtenPlainly(model, 1));
  });

  it('writes the same with an adapter on it', async () => {
    using model = exact(shapes.qwen3);
    addLora(model, { r: 2, alpha: 4 });
    noGrad(() => {
      for (const [, parameter] of model.adapters?.parameters() ?? []) parameter.normal_(0, 0.2);
    });
    using sampler = new Sampler(model, { slots: 2 });
    expect(await written(sampler, 2)).toEqual(await writtenPlainly(model, 2));
  });

  it('is seen with its new weights after a step of an optimizer, and has copies again once they are bf16 numbers', async () => {
    using model = exact(shapes.qwen3);
    const { decoder } = model;
    using sampler = new Sampler(model, { slots: 2 });
    const before = await written(sampler, 2);

    decoder.requiresGrad_();
    scope(() => {
      const optimizer = new AdamW([...decoder.parameters()], { lr: 0.05 });
      const batch = packSequences([[1, 2, 3, 4, 5]], 'cpu');
      decoder.backward(batch, (hidden) => decoder.logits(hidden).square().mean());
      optimizer.step();
      optimizer.dispose();
    });
    decoder.requiresGrad_(false);
    const trained = await written(sampler, 2);
    expect(trained).not.toEqual(before);
    expect(trained).toEqual(await writtenPlainly(model, 2));

    round(model);
    const rounded = await written(sampler, 2);
    expect(rounded).not.toEqual(trained);
    expect(rounded).toEqual(await writtenPlainly(model, 2));
  });
});

describe('ExactCopies', () => {
  it('has copies of what is exact, of new numbers once they were written, and frees them', () => {
    using model = exact(shapes.qwen3);
    const [first, second] = [...model.decoder.projections()].map(({ weight }) => weight as Tensor) as [Tensor, Tensor];
    const before = liveTensors();
    const halves = ExactCopies.of(model.decoder) as ExactCopies;
    halves.refresh(0);
    const [made, kept] = [halves.copyOf(first), halves.copyOf(second)];
    expect([first, second, model.decoder.headWeight].map((matrix) => bitsOf(halves.copyOf(matrix)))).toEqual(
      Array(3).fill(ofHalves),
    );

    noGrad(() => void first.mul_(0.5)); // still bf16 numbers
    halves.refresh(0);
    expect(bitsOf(halves.copyOf(first))).toBe(ofHalves);
    expect(halves.copyOf(first)).not.toBe(made);
    expect(halves.copyOf(second)).toBe(kept);

    noGrad(() => void first.mul_(1.001));
    halves.refresh(0);
    expect(bitsOf(halves.copyOf(first))).toBe(ofOthers);
    expect(halves.copyOf(second)).toBe(kept);
    const all = halves.bytes;
    const gone = [first, second].reduce((sum, matrix) => sum + bytesOf(halves.copyOf(matrix)), 0);

    second.requiresGrad_();
    first.requiresGrad_();
    halves.refresh(0);
    expect([halves.copyOf(first), halves.copyOf(second)]).toEqual([null, null]);
    expect(halves.bytes).toBe(all - gone);
    halves.dispose();
    expect([halves.bytes, liveTensors()]).toEqual([0, before]);
  });

  it('makes none where there is too little memory, on other dtypes, and of weights that are dealt over processes', () => {
    using model = exact(shapes.qwen3);
    using other = initModel(shapes.qwen3, { seed: 1, dtype: 'float16' });
    expect(ExactCopies.of(other.decoder)).toBeNull();
    const halves = ExactCopies.of(model.decoder) as ExactCopies;
    halves.refresh(Number.MAX_SAFE_INTEGER);
    expect(halves.bytes).toBe(0);
    model.decoder.residence = { isWhole: true, makeWhole: async () => false };
    halves.refresh(0);
    expect(halves.bytes).toBe(0);
    model.decoder.residence = null;
    halves.refresh(0);
    expect(halves.bytes).toBeGreaterThan(0);
    halves.dispose();
  });

  it('leaves no tensors behind in a sampler, which frees them when it is disposed', async () => {
    using model = exact(shapes['llama, tied']);
    const atFirst = await settledTensors();
    const sampler = new Sampler(model, { slots: 2 });
    await written(sampler, 2);
    const before = await settledTensors();
    await written(sampler, 2);
    noGrad(() => {
      for (const [, weight] of model.decoder.parameters()) weight.mul_(2);
    });
    await written(sampler, 2);
    expect(liveTensors()).toBe(before);
    sampler.dispose();
    expect(await settledTensors()).toBeLessThanOrEqual(atFirst + 2); // the rope's tables stay with the model
  });
});

describe('a float32 model of other numbers', () => {
  for (const [name, config] of Object.entries(shapes))
    it(`writes the same with copies, where there are any, to the bit: ${name}`, async () => {
      using model = filled(config);
      expect(await rowsThatDiffer(model)).toEqual([]);
    });

  it('has copies of seven eighths of its bytes and little more, or none where this CPU does not gain', () => {
    using model = filled({ ...SHAPE, model_type: 'llama', hidden_size: 256, intermediate_size: 512, vocab_size: 512 });
    using copies = disposable(ExactCopies.of(model.decoder) as ExactCopies);
    copies.refresh(0);
    const matrices = [...model.decoder.projections()].map(({ weight }) => weight?.numel ?? 0);
    const bytes = 4 * matrices.reduce((sum, numel) => sum + numel, model.decoder.headWeight.numel);
    if (!shortens) expect(copies.bytes).toBe(0);
    else {
      expect(copies.bytes).toBeGreaterThan((7 / 8) * bytes);
      expect(copies.bytes).toBeLessThan((7.5 / 8) * bytes);
    }
  });

  // with numbers of very different size
  it.each(sizesOfAll)('has the same logits from copies, to the bit: $hidden_size', (sizes) => {
    using model = filled({ ...SHAPE, ...sizes, model_type: 'qwen2', max_position_embeddings: 64 });
    const matrices = [...model.decoder.projections()].map(({ weight }) => weight as Tensor);
    for (const matrix of [...matrices, model.decoder.headWeight]) scatterFar(matrix);
    using copies = disposable(ExactCopies.of(model.decoder) as ExactCopies);
    copies.refresh(0);
    if (shortens && sizes.hidden_size > 100) expect(copies.bytes).toBeGreaterThan(0);
    const rows = 26;
    const cache = cacheOf(model, rows);
    const plain = DecodePlan.of(model.decoder, cache) as DecodePlan;
    const plan = DecodePlan.of(model.decoder, cache, { exact: () => copies }) as DecodePlan;
    for (let count = 1; count <= rows; count++) expect(firstLogits(plan, count)).toEqual(firstLogits(plain, count));
    for (const each of [plan, plain, cache]) each.dispose();
  });

  it('is read from the copy while its matrix is as it was, and from the matrix once that was written to', () => {
    using model = filled({ ...SHAPE, model_type: 'llama', hidden_size: 64, vocab_size: 64 });
    const { headWeight } = model.decoder;
    using copies = disposable(ExactCopies.of(model.decoder) as ExactCopies);
    copies.refresh(0);
    const copy = copies.copyOf(headWeight);
    expect(bitsOf(copy)).toBe(ofOthers);
    const cache = cacheOf(model);
    const plan = DecodePlan.of(model.decoder, cache, { exact: () => copies }) as DecodePlan;
    const expected = firstLogits(plan, 1);
    if (copy !== null) {
      spoil(copy);
      expect(firstLogits(plan, 1)).not.toEqual(expected);
    }
    noGrad(() => void headWeight.mul_(1));
    expect(firstLogits(plan, 1)).toEqual(expected);
    for (const each of [plan, cache]) each.dispose();
  });

  it('takes no plan with words that are no copy of the matrix', () => {
    using model = filled({ ...SHAPE, model_type: 'llama', hidden_size: 64, vocab_size: 64 });
    const { headWeight } = model.decoder;
    const cache = cacheOf(model);
    using copies = disposable(ExactCopies.of(model.decoder) as ExactCopies);
    copies.refresh(0);
    const copy = copies.copyOf(headWeight);
    const words = copy?.numbers() ?? [];
    const strips = words.indexOf(0) - 2;
    if (copy !== null)
      for (let word = 0; word < 3 + 2 * strips + (words[0] as number); word++) {
        const before = words[word] as number;
        for (const wrong of [before + 100_000, -1]) {
          noGrad(() => scope(() => void copy.narrow(0, word, 1).fill_(wrong)));
          expect(DecodePlan.of(model.decoder, cache, { exact: () => copies })).toBeNull();
        }
        noGrad(() => scope(() => void copy.narrow(0, word, 1).fill_(before)));
      }
    const plan = DecodePlan.of(model.decoder, cache, { exact: () => copies });
    expect(plan).not.toBeNull();
    for (const each of [plan as DecodePlan, cache]) each.dispose();
  });
});

describe('a plan with copies', () => {
  it('reads the copy while its matrix is as it was, and the matrix itself once that was written to', () => {
    using model = exact({ ...SHAPE, model_type: 'llama', hidden_size: 64 });
    const { headWeight } = model.decoder;
    const halves = ExactCopies.of(model.decoder) as ExactCopies;
    halves.refresh(0);
    const cache = cacheOf(model);
    const plain = DecodePlan.of(model.decoder, cache) as DecodePlan;
    const plan = DecodePlan.of(model.decoder, cache, { exact: () => halves }) as DecodePlan;
    for (const rows of [1, 2, 3]) expect(firstLogits(plan, rows)).toEqual(firstLogits(plain, rows));
    const expected = firstLogits(plain, 1);
    spoil(halves.copyOf(headWeight));
    expect(firstLogits(plan, 1)).not.toEqual(expected);
    noGrad(() => void headWeight.mul_(1));
    expect(firstLogits(plan, 1)).toEqual(expected);
    for (const each of [plan, plain, cache, halves]) each.dispose();
  });

  it.each(sizesOfAll)('has the same logits with as many rows as there may be, to the bit: $hidden_size', (sizes) => {
    const rows = 33;
    using model = exact({ ...SHAPE, ...sizes, model_type: 'qwen2', max_position_embeddings: 64 });
    const halves = ExactCopies.of(model.decoder) as ExactCopies;
    halves.refresh(0);
    expect(halves.bytes).toBeGreaterThan(0);
    const cache = cacheOf(model, rows);
    const plain = DecodePlan.of(model.decoder, cache) as DecodePlan;
    const plan = DecodePlan.of(model.decoder, cache, { exact: () => halves }) as DecodePlan;
    for (let count = 1; count <= rows; count++) expect(firstLogits(plan, count)).toEqual(firstLogits(plain, count));
    for (const each of [plan, plain, cache, halves]) each.dispose();
  });

  it('is made after so many steps, however many of them were one call: first with the short copies, then with all', () => {
    using model = exact(shapes.qwen3);
    const cache = cacheOf(model);
    const asked: [number, boolean][] = [];
    let taken = 0;
    const exactCopies = (all: boolean) => {
      asked.push([taken, all]);
      return null;
    };
    const stepper = new Stepper(model.decoder, cache, () => ({ exact: exactCopies }));
    const slots = tensor(BigInt64Array.of(0n));
    const rule = ruleTensors([{ temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 }], [1], 'cpu');
    const call = (steps: number) => {
      scope(() => stepper.nextHeld({ rule, slots }, [5], [0], { steps, stops: [], milliseconds: 1e9 }));
      taken += steps;
    };
    for (const steps of [14, 2, 3, ...Array(15).fill(12)]) call(steps);
    expect(asked).toEqual([
      [16, false],
      [139, true],
    ]);
    stepper.dispose();
    cache.dispose();
  });

  it('gains by them where rows are few', () => {
    using model = exact(shapes.qwen3);
    const cache = cacheOf(model);
    const plan = DecodePlan.of(model.decoder, cache) as DecodePlan;
    expect([plan.gainsByCopies(1), plan.gainsByCopies(48)]).toEqual([true, false]);
    for (const each of [plan, cache]) each.dispose();
  });
});

describe('attune::exact_shorts', () => {
  const shorts = (weight: Tensor, mostBits = 28) => aten<Tensor>('attune::exact_shorts', weight, mostBits);

  it('has none in 28 bits where 12 are the most', () => {
    scope(() => {
      const weight = zeros([320, 64]).normal_(0, 0.3);
      expect(shorts(weight, 12).numel).toBe(0);
      expect(shorts(weight).numel > 0).toBe(shortens);
      const rounded = weight.to('bfloat16').to('float32');
      expect(shorts(rounded, 12).numel > 0).toBe(shortens);
      noGrad(
        () =>
          void rounded
            .view(-1)
            .narrow(0, 64 * 310 + 5, 1)
            .mul_(1.001),
      );
      expect(shorts(rounded, 12).numel).toBe(0);
    });
  });

  it('has none of numbers that are too far from each other, too few or not in whole chunks, and of a turned matrix', () => {
    scope(() => {
      const spread = Float32Array.from({ length: 64 * 64 }, (_, i) => (1 + i / 5000) * 2 ** ((i % 40) - 20));
      expect(shorts(tensor(spread, { shape: [64, 64] })).numel).toBe(0);
      for (const shape of [
        [15, 64],
        [64, 7],
        [64, 12],
        [0, 64],
        [64, 0],
      ])
        expect(shorts(zeros(shape)).numel).toBe(0);
      expect(shorts(zeros([64, 32]).t()).numel).toBe(0);
      for (const other of [zeros([3]), zeros([2, 2], { dtype: 'float64' })])
        expect(() => shorts(other)).toThrow(/float32 or bfloat16 matrix/);
    });
  });
});

describe('attune::exact_halves', () => {
  const halves = (weight: Tensor) => aten<Tensor>('attune::exact_halves', weight);
  const bits = (values: Uint32Array) => new Float32Array(values.buffer);

  it('takes every number of bf16 over, bit for bit', () => {
    scope(() => {
      const all = Uint32Array.from({ length: 65536 }, (_, i) => i << 16);
      const copy = halves(tensor(bits(all), { shape: [256, 256] }));
      expect(copy.dtype).toBe('bfloat16');
      const found = aten<Tensor>('view.dtype', copy, 'int16').numbers();
      expect(found.every((value, i) => (value & 0xffff) === i)).toBe(true);
    });
  });

  it.each([0, 1, 4095, 4096, 100_000, 131_071])('has none where number %i has other bits', (place) => {
    scope(() => {
      const values = new Float32Array(131_072).fill(1.5);
      expect(halves(tensor(values, { shape: [512, 256] })).shape).toEqual([512, 256]);
      values[place] = 1 + 2 ** -8;
      expect(halves(tensor(values, { shape: [512, 256] })).numel).toBe(0);
    });
  });

  it('has none of a turned matrix, and refuses what is no float32 matrix', () => {
    scope(() => {
      expect(halves(zeros([2, 3]).t()).numel).toBe(0);
      expect(halves(zeros([3, 0])).shape).toEqual([3, 0]);
      for (const other of [zeros([3]), zeros([2, 2], { dtype: 'float64' })])
        expect(() => halves(other)).toThrow(/float32 matrix/);
    });
  });
});
