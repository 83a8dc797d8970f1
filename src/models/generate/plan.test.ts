/** A decoding step by the plan against the general path, and what native code refuses. */
import { describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { aten, liveTensors, noGrad, scope, seed, type Tensor, tensor, zeros } from '../../tensor/index.ts';
import { addLora, initModel, type Model, quantTypes, Sampler } from '../index.ts';
import { KvCache } from './cache/cache.ts';
import { generalLogits } from './decoding.ts';
import { DecodePlan, planParts } from './plan.ts';
import { ruleTensors, sampleNext } from './sampling.ts';
import { filled, SHAPE } from './small-model.test-support.ts';
import { Stepper } from './stepper.ts';

const llama = { ...SHAPE, model_type: 'llama', tie_word_embeddings: true };
const qwen2 = { ...SHAPE, head_dim: 6, model_type: 'qwen2' };
const qwen3 = { ...SHAPE, model_type: 'qwen3' };
const mistral = { ...SHAPE, model_type: 'mistral', sliding_window: 3 };
const gpt2 = { model_type: 'gpt2', vocab_size: 40, n_embd: 24, n_layer: 2, n_head: 4, n_positions: 64 };

const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));
const spread = (a: readonly number[], b: readonly number[]) =>
  Math.max(...a.map((value, i) => Math.abs(value - (b[i] as number))));

/** Five slots of one block each; the blocks are not in the order of the slots. */
function cacheOf({ decoder: { spec, dtype } }: Model): KvCache {
  const cache = new KvCache(spec, { slots: 5, length: 16, blocks: 6 }, { dtype, device: 'cpu' });
  for (let slot = 0; slot < 5; slot++) cache.setTable(slot, [5 - slot]);
  cache.upload();
  return cache;
}

const plain = { temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 };

describe('DecodePlan', () => {
  const families = { llama, qwen2, qwen3, mistral };
  for (const [name, dtype] of (Object.keys(families) as (keyof typeof families)[]).flatMap((name) =>
    (['float32', 'bfloat16'] as const).map((dtype) => [name, dtype] as const),
  )) {
    it(`gives the general path's logits, and the draw from its own: ${name} in ${dtype}`, () => {
      seed(5);
      using model = filled(families[name], dtype);
      const { decoder } = model;
      const caches = [cacheOf(model), cacheOf(model), cacheOf(model)] as const;
      const plan = DecodePlan.of(decoder, caches[0]) as DecodePlan;
      const drawing = DecodePlan.of(decoder, caches[2]) as DecodePlan;
      let last = [3, 14, 25, 36];
      let slots = [1, 3, 0, 2];
      for (let t = 0; t < 10; t++) {
        // one row leaves half way
        if (t === 5) [last, slots] = [last.slice(1), slots.slice(1)];
        scope(() =>
          noGrad(() => {
            const rows = { ids: whole(last), positions: whole(last.map(() => t)), slots: whole(slots) };
            const rules = [{ ...plain, temperature: 0 }, plain, { ...plain, topP: 0.8 }, { ...plain, topK: 5 }];
            const rule = ruleTensors(rules.slice(-last.length), slots, 'cpu');
            const logits = plan.logits(rows);
            expect(spread(logits.numbers(), generalLogits(decoder, caches[1], rows).numbers())).toBeLessThan(1e-4);
            const expected = sampleNext(logits, rule, rows.positions.add(1));
            const drawn = drawing.step(rows, rule);
            for (const part of ['ids', 'logp', 'kept'] as const)
              expect(drawn[part].numbers()).toEqual(expected[part].numbers());
            last = drawn.ids.numbers();
          }),
        );
      }
      expect(spread(caches[0].keys[1]?.numbers() ?? [], caches[1].keys[1]?.numbers() ?? [])).toBeLessThan(1e-5);
      for (const each of [plan, drawing, ...caches]) each.dispose();
    });
  }

  // 64 inputs are whole blocks of 4 bits, 24 are not
  it.each(quantTypes.flatMap((type) => [64, 24].map((width) => [type, width] as const)))(
    "gives the general path's logits of %s weights, %i wide",
    (quantType, width) => {
      seed(5);
      using model = initModel({ ...qwen3, hidden_size: width, intermediate_size: 128 }, { seed: 1, quantType });
      const caches = [cacheOf(model), cacheOf(model)] as const;
      const plan = DecodePlan.of(model.decoder, caches[0]) as DecodePlan;
      scope(() =>
        noGrad(() => {
          for (let t = 0; t < 3; t++) {
            const rows = { ids: whole([3, 14, 25]), positions: whole([t, t, t]), slots: whole([1, 3, 0]) };
            const expected = generalLogits(model.decoder, caches[1], rows).numbers();
            expect(spread(plan.logits(rows).numbers(), expected)).toBeLessThan(1e-5);
          }
        }),
      );
      for (const each of [plan, ...caches]) each.dispose();
    },
  );

  it.each(['float32', 'bfloat16', ...quantTypes] as const)(
    'gives a row the same to the bit without its neighbours: %s',
    (kind) => {
      using model =
        kind === 'float32' || kind === 'bfloat16'
          ? filled(qwen3, kind)
          : initModel(qwen3, { seed: 1, quantType: kind });
      const run = (rows: number[]) => {
        const cache = cacheOf(model);
        using stepper = new Stepper(model.decoder, cache);
        const logits = scope(() =>
          noGrad(() =>
            [0, 1].map((t) =>
              stepper
                .logits({
                  ids: whole(rows.map((row) => 7 * row + t)),
                  positions: whole(rows.map(() => t)),
                  slots: whole(rows),
                })
                .numbers(),
            ),
          ),
        );
        cache.dispose();
        return logits;
      };
      const together = run([0, 1, 2]);
      for (const row of [0, 1, 2])
        expect(run([row])).toEqual(together.map((all) => all.slice(row * 40, (row + 1) * 40)));
    },
  );

  it('leaves other families, dtypes, adapters and many rows to the general path', () => {
    using model = initModel(qwen3, { seed: 1 });
    using other = filled(gpt2);
    using half = initModel(qwen3, { seed: 1, dtype: 'float16' });
    using mixed = initModel(qwen3, { seed: 1, dtype: 'bfloat16', quantType: 'int8' });
    const cache = cacheOf(model);
    expect(DecodePlan.of(other.decoder, cache)).toBeNull();
    const [narrow, other16] = [cacheOf(half), cacheOf(mixed)];
    expect(DecodePlan.of(half.decoder, narrow)).toBeNull();
    expect(DecodePlan.of(mixed.decoder, other16)).toBeNull();
    const plan = DecodePlan.of(model.decoder, cache) as DecodePlan;
    expect([plan.takes(0), plan.takes(128), plan.takes(129), plan.takes(-1)]).toEqual([true, true, false, false]);
    addLora(model, { r: 2, alpha: 4, targetModules: ['down_proj'] });
    expect(DecodePlan.of(model.decoder, cache)).toBeNull();
    for (const each of [plan, cache, narrow, other16]) each.dispose();
    expect(() => plan.takes(1)).toThrow(/no plan/);
  });

  it('goes on when another sampler needs longer tables meanwhile', () => {
    using model = filled(llama);
    const cache = cacheOf(model);
    using stepper = new Stepper(model.decoder, cache);
    const run = () =>
      scope(() =>
        noGrad(() => stepper.logits({ ids: whole([3]), positions: whole([0]), slots: whole([1]) }).numbers()),
      );
    const before = run();
    model.decoder.ropeUpTo(100_000);
    expect(run()).toEqual(before);
    cache.dispose();
  });

  it('leaves nothing behind', async () => {
    using model = filled(llama);
    using sampler = new Sampler(model);
    const requests = [1, 4, 9].map((maxNewTokens) => ({ prompt: [1, 2], maxNewTokens, samples: 2 }));
    await sampler.generate(requests);
    const before = await settledTensors();
    await sampler.generate(requests);
    expect(liveTensors()).toEqual(before);
  });
});

describe('attune::decode_plan', () => {
  const cases = (model: Model, cache: KvCache) => {
    const make = (change: (parts: ReturnType<typeof planParts>) => void = () => {}) => {
      const parts = planParts(model.decoder, cache);
      change(parts);
      const { tensors, settings } = parts;
      const [names, values] = [Object.keys(tensors), Object.values(tensors)];
      return aten<number>('attune::decode_plan', names, values, Object.keys(settings), Object.values(settings));
    };
    const logits = (plan: number, ids: number[], positions: number[], slots: number[]) =>
      aten<Tensor>('attune::decode_logits', plan, whole(ids), whole(positions), whole(slots));
    return { make, logits };
  };

  it("adds the head's bias, and refuses ids, positions and slots that do not fit", () => {
    using model = filled(qwen3);
    const cache = cacheOf(model);
    scope(() => {
      const { make, logits } = cases(model, cache);
      const bias = tensor(Float32Array.from({ length: 40 }, (_, i) => i));
      const [bare, biased] = [
        make(),
        make(({ tensors }) => {
          tensors['head.bias'] = bias;
        }),
      ];
      const [without, with_] = [bare, biased].map((plan) => logits(plan, [39], [63], [4]).numbers()) as [
        number[],
        number[],
      ];
      for (let i = 0; i < 40; i++) expect((with_[i] as number) - (without[i] as number)).toBeCloseTo(i, 3);
      expect(logits(bare, [], [], []).shape).toEqual([0, 40]);
      const refused: [number[], number[], number[], RegExp][] = [
        [[40], [0], [0], /id 40 lies outside the embedding/],
        [[-1], [0], [0], /id -1 lies outside the embedding/],
        [[0], [64], [0], /outside the cache/],
        [[0], [-1], [0], /outside the cache/],
        [[0], [0], [5], /outside the cache/],
        [[0], [0, 1], [0], /one int64 id, position and slot per row/],
      ];
      for (const [ids, positions, slots, message] of refused)
        expect(() => logits(bare, ids, positions, slots)).toThrow(message);
      for (const plan of [bare, biased]) aten('attune::decode_plan_free', plan);
      expect(() => logits(bare, [0], [0], [0])).toThrow(/no plan/);
    });
    cache.dispose();
  });

  it('refuses parts that are missing, unknown or of a wrong size', () => {
    using model = filled(qwen3);
    const cache = cacheOf(model);
    scope(() => {
      const { make } = cases(model, cache);
      const replaced = (name: string, value: Tensor) => () =>
        make(({ tensors }) => {
          tensors[name] = value;
        });
      expect(() => make(({ tensors }) => void delete tensors['layers.1.up.weight'])).toThrow(/no "layers.1.up.weight"/);
      expect(() => make(({ settings }) => void delete settings.heads)).toThrow(/no "heads"/);
      expect(replaced('layers.2.up', zeros([1]))).toThrow(/no use for "layers.2.up"/);
      expect(replaced('head.bias', zeros([39]))).toThrow(/a bias has one number per output/);
      expect(replaced('head.weight', zeros([40, 23]))).toThrow(/head does not fit/);
      expect(replaced('layers.0.qkv.weight', zeros([3, 24]))).toThrow(/qkv does not fit/);
      expect(replaced('layers.0.qNorm', zeros([3]))).toThrow(/does not fit a head/);
      expect(replaced('cos', zeros([4, 4]))).toThrow(/tables of every position/);
      // a matching shape with a dtype or layout that the kernels lack has no plan
      expect(replaced('head.weight', zeros([40, 24], { dtype: 'float64' }))()).toBe(-1);
      expect(replaced('head.weight', zeros([24, 40]).t())()).toBe(-1);
    });
    cache.dispose();
  });
});
