/** A decoding step in one call against the general way, and what it refuses. */
import { describe, expect, it } from 'vitest';
import { aten, liveTensors, noGrad, scope, type Tensor, tensor, zeros } from '../../tensor/index.ts';
import { addLora, type Model, Sampler } from '../index.ts';
import { KvCache } from './cache.ts';
import { CpuStep } from './cpu-step.ts';
import { layerArguments } from './decode-layer.ts';
import { decode } from './decoding.ts';
import { Reply } from './request.ts';
import { RowTensors } from './row-tensors.ts';
import { sampleNext } from './sampling.ts';
import { filled, SHAPE } from './small-model.test-support.ts';

const llama = { ...SHAPE, model_type: 'llama', tie_word_embeddings: true };
const qwen2 = { ...SHAPE, head_dim: 6, model_type: 'qwen2' };
const qwen3 = { ...SHAPE, model_type: 'qwen3' };
const mistral = { ...SHAPE, model_type: 'mistral', sliding_window: 3 };
const gpt2 = { model_type: 'gpt2', vocab_size: 40, n_embd: 24, n_layer: 2, n_head: 4, n_positions: 64 };

const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));

const cacheOf = (model: Model) =>
  new KvCache(model.decoder.spec, { slots: 5, length: 16 }, { dtype: 'float32', device: 'cpu' });

/** Replies that begin with one token each, in slots of their own. */
function replies(rules: { temperature?: number; topK?: number; topP?: number; repetitionPenalty?: number }[]): Reply[] {
  return rules.map((rule, i) => {
    const reply = new Reply({ prompt: [1], maxNewTokens: 12, seed: 7 * i, ...rule }, 0, undefined);
    reply.slot = (2 * i + 1) % 5;
    reply.push((11 * i + 3) % 40, 0);
    return reply;
  });
}

describe('CpuStep', () => {
  for (const [name, config] of Object.entries({ llama, qwen2, qwen3, mistral })) {
    it(`draws what the general way draws, to the bit: ${name}`, () => {
      using model = filled(config);
      const { decoder } = model;
      const caches = [cacheOf(model), cacheOf(model)] as const;
      const active = replies([{ temperature: 0 }, {}, { topP: 0.8, temperature: 1.5 }, { topK: 5 }]);
      using rows = new RowTensors('cpu');
      using step = new CpuStep(decoder, caches[0]);
      for (let t = 0; t < 10; t++) {
        // one leaves half way
        if (t === 5) active.splice(1, 1);
        const held = rows.of(active);
        const drawn = step.run(active, held);
        const expected = scope(() =>
          noGrad(() => {
            const positions = whole(active.map((reply) => reply.position));
            const hidden = decode(decoder, caches[1], whole(active.map((reply) => reply.last)), positions, held.slots);
            const { ids, logp } = sampleNext(decoder.logits(hidden), held.rule, positions.add(1));
            return { ids: ids.numbers(), logprobs: logp.numbers() };
          }),
        );
        expect(drawn).toEqual(expected);
        for (const [i, reply] of active.entries()) reply.push(expected.ids[i] as number, 0);
      }
      for (const cache of caches) cache.dispose();
    });
  }

  it('leaves other models, penalties and adapters to the general way, also when these come in between', () => {
    using model = filled(qwen3);
    using other = filled(gpt2);
    const cache = cacheOf(model);
    using rows = new RowTensors('cpu');
    using step = new CpuStep(model.decoder, cache);
    using otherStep = new CpuStep(other.decoder, cache);
    const plain = replies([{}, {}]);
    expect(step.run(plain, rows.of(plain))).not.toBeNull();
    expect(otherStep.run(plain, rows.of(plain))).toBeNull();
    const penalised = replies([{}, { repetitionPenalty: 1.2 }]);
    expect(step.run(penalised, rows.of(penalised))).toBeNull();
    expect(step.run(plain, rows.of(plain))).not.toBeNull();
    addLora(model, { r: 2, alpha: 4 });
    expect(step.run(plain, rows.of(plain))).toBeNull();
    cache.dispose();
  });

  it('goes on when another sampler needs longer tables meanwhile', () => {
    using model = filled(llama);
    const cache = cacheOf(model);
    using rows = new RowTensors('cpu');
    using step = new CpuStep(model.decoder, cache);
    const active = replies([{ temperature: 0 }]);
    const before = step.run(active, rows.of(active));
    model.decoder.ropeUpTo(100_000);
    expect(step.run(active, rows.of(active))).toEqual(before);
    cache.dispose();
  });

  it('leaves nothing behind', async () => {
    using model = filled(llama);
    using sampler = new Sampler(model);
    const requests = [1, 4, 9].map((maxNewTokens) => ({ prompt: [1, 2], maxNewTokens, samples: 2 }));
    await sampler.generate(requests);
    const before = liveTensors();
    await sampler.generate(requests);
    expect(liveTensors()).toEqual(before);
  });
});

describe('attune::decode_step', () => {
  it("adds the head's bias, and refuses ids, positions, slots and parts that do not fit", () => {
    using model = filled(qwen3);
    const { decoder } = model;
    const cache = cacheOf(model);
    scope(() => {
      const { before, after } = layerArguments(decoder.layers, decoder, cache);
      const call = (
        ids: number[],
        positions: number[],
        slots: number[],
        head = decoder.headWeight,
        bias: Tensor | null = null,
        rows = 1,
      ) =>
        aten<[number[], number[]]>(
          'attune::decode_step',
          decoder.weights.embedding.weight,
          ...before,
          whole(slots),
          ...after,
          decoder.weights.finalNorm.weight,
          1e-5,
          head,
          bias,
          zeros([rows]),
          whole(Array(rows).fill(0)),
          zeros([rows]),
          zeros([rows]),
          whole(Array(rows).fill(0)),
          ids,
          positions,
        );
      expect(call([39], [15], [4])[0]).toHaveLength(1);
      expect(call([], [], [], decoder.headWeight, null, 0)).toEqual([[], []]);
      // at temperature 0 it is the likeliest
      const bias = Float32Array.from({ length: 40 }, (_, i) => (i === 7 ? 1e4 : 0));
      expect(call([39], [15], [4], decoder.headWeight, tensor(bias))[0]).toEqual([7]);
      expect(() => call([0], [0], [0], decoder.headWeight, zeros([39]))).toThrow(/a bias has one number per output/);
      expect(() => call([40], [0], [0])).toThrow(/id 40 lies outside the embedding/);
      expect(() => call([-1], [0], [0])).toThrow(/id -1 lies outside the embedding/);
      expect(() => call([0], [16], [0])).toThrow(/outside the cache/);
      expect(() => call([0], [-1], [0])).toThrow(/outside the table/);
      expect(() => call([0], [0], [5])).toThrow(/outside the cache/);
      expect(() => call([0], [0, 1], [0])).toThrow(/one id and position per row/);
      expect(() => call([0], [0], [0, 1])).toThrow(/one int64 slot and position per row/);
      expect(() => call([0, 1], [0, 1], [0, 1])).toThrow(/one float32 per row/);
      expect(() => call([0], [0], [0], zeros([40, 23]))).toThrow(/the head does not fit/);
      expect(() => call([0], [0], [0], zeros([40, 24], { dtype: 'float64' }))).toThrow(/the head does not fit/);
    });
    cache.dispose();
  });
});
