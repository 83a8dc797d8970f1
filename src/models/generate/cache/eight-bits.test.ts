/** Sampling from an 8-bit cache: its distance from the plain one, and that scales move with their blocks. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { settledTensors } from '../../../../tests/support/settled-tensors.ts';
import { UserError } from '../../../errors.ts';
import { Random } from '../../../random.ts';
import { noGrad, scope, seed, tensor } from '../../../tensor/index.ts';
import {
  addLora,
  type CacheDtype,
  createSampler,
  type GenerationRequest,
  initModel,
  loadModel,
  type Model,
  type SampledResponse,
  Sampler,
  type SamplerOptions,
} from '../../index.ts';
import { filled, SHAPE } from '../small-model.test-support.ts';
import { Stepper } from '../stepper.ts';
import { BLOCK, cacheBytes, KvCache } from './cache.ts';

const root = join(import.meta.dirname, '../../../..');
const tiny = join(root, 'models/tiny');
const fixture = join(root, 'tests/models/fixtures/qwen3');
const open = () => loadModel(fixture, { dtype: 'float32' });
const tokens = (random: Random, count: number) => Array.from({ length: count }, () => random.int(3, 39));
const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));
const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** log p of each next token, one list per position: each token is a step of decoding. */
function logprobs({ decoder }: Model, ids: readonly number[], cacheDtype: CacheDtype): number[][] {
  const { dtype, device } = decoder;
  const blocks = Math.ceil(ids.length / BLOCK);
  const size = { slots: 1, length: blocks * BLOCK, blocks };
  const cache = new KvCache(decoder.spec, size, { dtype, device, cacheDtype });
  cache.setTable(
    0,
    Array.from({ length: blocks }, (_, i) => i),
  );
  cache.upload();
  using stepper = new Stepper(decoder, cache);
  const found = ids.map((id, position) =>
    scope(() =>
      noGrad(() =>
        stepper
          .logits({ ids: whole([id]), positions: whole([position]), slots: whole([0]) })
          .to('float32')
          .logSoftmax(-1)
          .numbers(),
      ),
    ),
  );
  cache.dispose();
  return found;
}

/** KL(plain ‖ 8 bits) of each next-token distribution over these tokens, in nats, and the largest |Δ log p| of the tokens themselves. */
function distance(model: Model, ids: readonly number[]): { kl: number; furthest: number } {
  const [plain, rounded] = (['model', 'int8'] as const).map((kind) => logprobs(model, ids, kind)) as [
    number[][],
    number[][],
  ];
  const differences = plain.map((row, t) => row.map((p, i) => p - ((rounded[t] as number[])[i] as number)));
  const kl = plain.map((row, t) =>
    row.reduce((sum, p, i) => sum + Math.exp(p) * ((differences[t] as number[])[i] as number), 0),
  );
  const own = ids.slice(1).map((id, t) => Math.abs((differences[t] as number[])[id] as number));
  return { kl: mean(kl), furthest: Math.max(...own) };
}

async function written(model: Model, requests: readonly GenerationRequest[], options: SamplerOptions = {}) {
  using sampler = new Sampler(model, { cacheDtype: 'int8', ...options });
  return await sampler.generate(requests);
}
const idsOf = (responses: readonly SampledResponse[][]) => responses.flat().map(({ ids }) => [...ids]);

describe('cacheDtype int8', () => {
  // docs/quantisation.md has the figures of longer texts
  it.each([
    ['float32', 1e-3],
    ['bfloat16', 2e-3],
  ] as const)('models/tiny in %s: a KL below %d to the plain cache over 200 tokens', async (dtype, most) => {
    using model = await loadModel(tiny, { dtype });
    const [[response]] = (await written(
      model,
      [{ prompt: [60, 61, 62], maxNewTokens: 200, seed: 1, temperature: 1, stopIds: [] }],
      { cacheDtype: 'model' },
    )) as [[SampledResponse]];
    const { kl, furthest } = distance(model, [60, 61, 62, ...response.ids]);
    expect(kl).toBeLessThan(most);
    expect(kl).toBeGreaterThan(1e-9);
    expect(furthest).toBeLessThan(0.5);
  });

  it('takes nearly the same tokens greedily', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    const requests = [60, 90, 120, 150].map((id) => ({
      prompt: [id, id + 1, id + 2],
      maxNewTokens: 24,
      temperature: 0,
      stopIds: [],
    }));
    const [plain, rounded] = [
      idsOf(await written(model, requests, { cacheDtype: 'model' })),
      idsOf(await written(model, requests)),
    ];
    const same = plain.flatMap((ids, i) => ids.map((id, t) => Number(id === rounded[i]?.[t])));
    expect(mean(same)).toBeGreaterThan(0.7);
  });

  it("reads a prompt by its own keys and values: the first token's log-prob is the plain cache's", async () => {
    using model = await open();
    const requests = [{ prompt: tokens(new Random('prompt', 1), 90), maxNewTokens: 3, seed: 5, samples: 2 }];
    const [[plain]] = (await written(model, requests, { cacheDtype: 'model' })) as [[SampledResponse]];
    const [[rounded]] = (await written(model, requests)) as [[SampledResponse]];
    expect(rounded.ids[0]).toBe(plain.ids[0]);
    expect(rounded.logprobs[0]).toBe(plain.logprobs[0]);
    expect(rounded.logprobs[1]).not.toBe(plain.logprobs[1]);
  });

  it('does not depend on the other rows, nor on the number of slots', async () => {
    using model = await open();
    const random = new Random('rows', 1);
    const requests = [1, 5, 64, 70, 130].map((length, seed) => ({
      prompt: tokens(random, length),
      maxNewTokens: 70,
      seed,
    }));
    const together = await written(model, requests);
    expect(await written(model, requests, { slots: 2 })).toEqual(together);
    for (const [i, request] of requests.entries()) expect(await written(model, [request])).toEqual([together[i]]);
  });

  it('gives preempted rows back what they had, by the plan and by the general path, windowed and with ALiBi', async () => {
    seed(7);
    using plain = await open();
    using windowed = filled({ ...SHAPE, model_type: 'mistral', sliding_window: 40, max_position_embeddings: 512 });
    using other = filled({ model_type: 'gpt2', vocab_size: 40, n_embd: 24, n_layer: 2, n_head: 4, n_positions: 512 });
    using alibi = filled({ model_type: 'bloom', vocab_size: 40, hidden_size: 24, n_layer: 2, n_head: 4 });
    for (const model of [plain, windowed, other, alibi]) {
      const random = new Random('preempted', 1);
      const requests = Array.from({ length: 12 }, (_, seed) => ({
        prompt: tokens(random, [1, 63, 65, 130][seed % 4] as number),
        maxNewTokens: [64, 100, 150][seed % 3] as number,
        samples: 1 + (seed % 2),
        seed,
      }));
      const { decoder } = model;
      const maxCacheBytes = cacheBytes(
        decoder.spec,
        { blocks: 6 },
        { dtype: decoder.dtype, device: decoder.device, cacheDtype: 'int8' },
      );
      using sampler = new Sampler(model, { slots: 6, cacheDtype: 'int8', maxCacheBytes });
      const responses = await sampler.generate(requests);
      expect(sampler.cacheUse).toMatchObject({ blocks: 6, used: 0 });
      expect(sampler.cacheUse.preemptions).toBeGreaterThan(0);
      expect(responses).toEqual(await written(model, requests, { slots: 6 }));
    }
  });

  it('samples of a prompt have copies of its last block, scales included', async () => {
    using model = await open();
    const prompt = tokens(new Random('copies', 1), BLOCK + 20);
    const [group] = (await written(model, [{ prompt, maxNewTokens: 20, samples: 4, seed: 3 }])) as [SampledResponse[]];
    for (const i of [1, 3])
      expect(await written(model, [{ prompt, maxNewTokens: 20, seed: 3 + i }])).toEqual([[group[i]]]);
  });

  it('a conversation goes on from what is cached, close to a fresh one; branches copy the block that they share', async () => {
    using model = await open();
    const options = { slots: 6, maxLength: 6 * BLOCK, reusePrefixes: true, cacheDtype: 'int8' } as const;
    using sampler = createSampler(model, options);
    const system = tokens(new Random('branches', 1), 2 * BLOCK + 30);
    const ask = async (from: Sampler, request: GenerationRequest) =>
      (await from.submit(request).responses)[0] as SampledResponse;
    await ask(sampler, { prompt: system, maxNewTokens: 90, seed: 1 });
    const branches = [1, 2, 3].map((seed) => ({ prompt: [...system, 4 + seed, 9], maxNewTokens: 20, seed }));
    const together = await Promise.all(branches.map((request) => ask(sampler, request)));
    expect(sampler.promptTokens.reused).toBe(3 * system.length);
    for (const [i, request] of branches.entries()) {
      // one after the other from the same state: the same to the bit
      using again = createSampler(model, options);
      await ask(again, { prompt: system, maxNewTokens: 90, seed: 1 });
      expect(await ask(again, request)).toEqual(together[i]);
      using fresh = createSampler(model, { cacheDtype: 'int8' });
      const { logprobs, ids } = await ask(fresh, request);
      expect(together[i]?.ids[0]).toBe(ids[0]);
      expect(Math.abs((together[i]?.logprobs[0] as number) - (logprobs[0] as number))).toBeLessThan(0.05);
    }
  });

  it('works with adapters, merged or in turns, and with quantised weights', async () => {
    using adapted = await open();
    for (const name of ['one', 'two']) {
      addLora(adapted, { r: 2, alpha: 4, name });
      noGrad(() => {
        for (const [, weight] of adapted.adapters?.parameters() ?? []) weight.normal_(0, 0.3);
      });
    }
    const requests = [null, 'one', 'two'].map((adapter, seed) => ({
      prompt: [5, 6, 7],
      maxNewTokens: 30,
      seed,
      adapter,
    }));
    using quantised = initModel({ ...SHAPE, hidden_size: 64, model_type: 'qwen3' }, { seed: 1, quantType: 'int4' });
    const cases: [Model, GenerationRequest[]][] = [
      [adapted, requests],
      [quantised, requests.map(({ adapter: _, ...request }) => request)],
    ];
    for (const [model, asked] of cases) {
      const [plain, rounded] = [await written(model, asked, { cacheDtype: 'model' }), await written(model, asked)];
      for (const [i, [response]] of rounded.entries()) {
        const { ids, logprobs } = (plain[i] as SampledResponse[])[0] as SampledResponse;
        expect(response?.ids[0]).toBe(ids[0]);
        expect(Math.abs((response?.logprobs[1] as number) - (logprobs[1] as number))).toBeLessThan(0.1);
      }
    }
  });

  it.each(['float32', 'bfloat16'] as const)('takes the bytes that are planned, %s', async (dtype) => {
    using model = initModel({ ...SHAPE, model_type: 'qwen3' }, { seed: 1, dtype });
    const { spec } = model.decoder;
    const request = { prompt: [5], maxNewTokens: 60 };
    const planned = (['model', 'int8'] as const).map((cacheDtype) => {
      using sampler = new Sampler(model, { cacheDtype });
      return sampler.plan([request]).bytes;
    });
    // 2 layers of 2 kv heads of 8 numbers, keys and values, 64 tokens
    expect(planned).toEqual([2 * 2 * 64 * 2 * 8 * (dtype === 'float32' ? 4 : 2), 2 * 2 * 64 * 2 * (8 + 2)]);
    const cache = new KvCache(spec, { slots: 1, length: 64, blocks: 1 }, { dtype, device: 'cpu', cacheDtype: 'int8' });
    const held = [...cache.keys, ...cache.values].reduce((sum, { numel }) => sum + numel, 0);
    const scales = [...cache.keyScales, ...cache.valueScales].reduce((sum, { numel }) => sum + 2 * numel, 0);
    expect(held + scales).toBe(planned[1]);
    cache.dispose();
    using sampler = new Sampler(model, { cacheDtype: 'int8', maxCacheBytes: planned[1] });
    await sampler.generate([request]);
    expect(sampler.cacheBytes).toBe(planned[1]);
  });

  it('leaves nothing behind, is off unless asked for, and refuses other words', async () => {
    using model = initModel({ ...SHAPE, model_type: 'qwen3' }, { seed: 1 });
    await written(model, [{ prompt: [5, 6], maxNewTokens: 20 }]); // the model keeps its position tables
    const before = await settledTensors();
    await written(model, [{ prompt: [5, 6], maxNewTokens: 20, samples: 2 }]);
    expect(await settledTensors()).toEqual(before);
    using sampler = new Sampler(model);
    expect(sampler.cacheDtype).toBe('model');
    expect(() => new Sampler(model, { cacheDtype: 'fp8' as CacheDtype })).toThrow(UserError);
    expect(() => new Sampler(model, { cacheDtype: 'fp8' as CacheDtype })).toThrow('expected model or int8');
  });
});
