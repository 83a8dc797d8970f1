/** Models over a cache in 8 bits: a step against the CPU's, and sampling with captured steps. */
import { describe, expect, it } from 'vitest';
import { cacheBytes, KvCache } from '../../src/models/generate/cache/cache.ts';
import { prefill } from '../../src/models/generate/decoding.ts';
import { Stepper } from '../../src/models/generate/stepper.ts';
import {
  addLora,
  type GenerationRequest,
  initModel,
  type Model,
  type SampledResponse,
  Sampler,
  type SamplerOptions,
} from '../../src/models/index.ts';
import { type DType, integers, noGrad, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { dtypes } from './codes.ts';
import { device, gap, hasCuda } from './device.ts';

/** Head sizes that the kernels of a step have, and one that only the general kernel has. */
const models = [
  { head_dim: 128, num_attention_heads: 4, num_key_value_heads: 2 },
  { head_dim: 64, num_attention_heads: 6, num_key_value_heads: 2 },
  { head_dim: 80, num_attention_heads: 2, num_key_value_heads: 1 },
];
const modelOf = (heads: (typeof models)[number], place: string, dtype: DType): Model => {
  const made = initModel(
    {
      ...{ model_type: 'qwen3', vocab_size: 120, hidden_size: 128, intermediate_size: 96, num_hidden_layers: 2 },
      ...{ max_position_embeddings: 512, rms_norm_eps: 1e-6, tie_word_embeddings: true, ...heads },
    },
    { seed: 1, device: place, dtype },
  );
  noGrad(() => {
    for (const [, parameter] of made.decoder.parameters()) if (parameter.ndim === 1) parameter.fill_(1.1);
  });
  return made;
};

/** The logits of one step of so many rows behind prompts of 4 to 300 tokens. */
function stepLogits({ decoder }: Model, rows: number): Tensor {
  const width = 5;
  const { dtype, device: place } = decoder;
  const size = { slots: rows, length: width * 64, blocks: rows * width };
  const cache = new KvCache(decoder.spec, size, { dtype, device: place, cacheDtype: 'int8' });
  for (let slot = 0; slot < rows; slot++)
    cache.setTable(
      slot,
      Array.from({ length: width }, (_, i) => slot * width + ((i * 3 + slot) % width)),
    );
  cache.upload();
  const lengths = Array.from({ length: rows }, (_, i) => 4 + ((i * 97) % 297));
  const items = lengths.map((length, slot) => ({
    slot,
    prompt: Array.from({ length }, (_, i) => (i * 7 + slot * 13) % 120),
  }));
  noGrad(() => {
    for (let at = 0; at < rows; at += 32) scope(() => void prefill(decoder, cache, items.slice(at, at + 32)));
  });
  using stepper = new Stepper(decoder, cache);
  const given = [lengths.map((_, i) => (i * 11) % 120), lengths, lengths.map((_, i) => i)].map((values) =>
    integers(values, { device: place }),
  ) as [Tensor, Tensor, Tensor];
  const logits = noGrad(() => stepper.logits({ ids: given[0], positions: given[1], slots: given[2] }));
  const found = logits.to({ device: 'cpu', dtype: 'float32' });
  cache.dispose();
  return found;
}

describe('a step over 8 bits', () => {
  const rows = hasCuda ? [1, 3, 8, 16, 32, 64, 96, 260] : [1, 6];
  it.each(models)('of heads of $head_dim is the CPU’s in f32', (heads) =>
    scope(() => {
      for (const dtype of dtypes.slice(1)) {
        using here = modelOf(heads, 'cpu', 'float32');
        using there = modelOf(heads, device, dtype);
        noGrad(() => {
          // the same weights on both sides: those that bf16 holds
          const own = new Map(there.decoder.parameters());
          for (const [name, parameter] of here.decoder.parameters()) {
            const rounded = parameter.to('bfloat16').to('float32');
            parameter.copy_(rounded);
            own.get(name)?.copy_(rounded);
          }
        });
        for (const count of rows)
          expect(gap(stepLogits(there, count), stepLogits(here, count)), `${count} rows`).toBeLessThanOrEqual(0.06);
      }
    }),
  );
});

const requests: GenerationRequest[] = Array.from({ length: 9 }, (_, i) => ({
  prompt: Array.from({ length: 2 + ((i * 29) % 90) }, (_, j) => (i * 17 + j * 5 + 3) % 120),
  maxNewTokens: 3 + ((i * 17) % 60),
  temperature: i % 3 === 0 ? 0 : 0.9,
  topP: i % 2 === 0 ? 0.9 : 1,
  seed: i,
  stopIds: [],
}));

async function replies(of: Model, all: GenerationRequest[], options: SamplerOptions = {}): Promise<SampledResponse[]> {
  using sampler = new Sampler(of, { slots: 4, maxLength: 192, cacheDtype: 'int8', ...options });
  return (await sampler.generate(all)).map(([reply]) => reply as SampledResponse);
}

/** Up to the first token that differs: after it the texts are different ones. */
function close(found: readonly SampledResponse[], expected: readonly SampledResponse[], bound: number): void {
  let same = 0;
  for (const [i, { ids, logprobs }] of expected.entries()) {
    const differs = ids.findIndex((id, t) => id !== found[i]?.ids[t]);
    const end = differs < 0 ? ids.length : differs;
    for (let t = 0; t < end; t++)
      expect(Math.abs((found[i]?.logprobs[t] as number) - (logprobs[t] as number)), `${i}, ${t}`).toBeLessThan(bound);
    same += end / ids.length / expected.length;
  }
  expect(same).toBeGreaterThan(0.6);
}

describe.each(dtypes)(`sampling over 8 bits on ${device} in %s`, (dtype) => {
  const bound = dtype === 'float32' ? 1e-3 : 0.1;
  const heads = models[0] as (typeof models)[number];

  it('says by captured steps what called ones say, alone what it says together, and about what the plain cache says', async () => {
    using made = modelOf(heads, device, dtype);
    const captured = await replies(made, requests);
    close(
      captured,
      await replies(
        made,
        requests.map((request) => ({ ...request, topLogprobs: 1 })),
      ),
      bound,
    );
    const alone: SampledResponse[] = [];
    for (const request of requests) alone.push(...(await replies(made, [request], { slots: 1 })));
    close(captured, alone, bound);
    close(captured, await replies(made, requests, { cacheDtype: 'model' }), 0.1);
  });

  it('goes on after preemption and from what is cached', async () => {
    using made = modelOf(heads, device, dtype);
    const { decoder } = made;
    const kind = { dtype, device: decoder.device, cacheDtype: 'int8' } as const;
    using sampler = new Sampler(made, {
      ...{ slots: 4, maxLength: 192, cacheDtype: 'int8' as const },
      maxCacheBytes: cacheBytes(decoder.spec, { blocks: 4 }, kind),
    });
    const bounded = (await sampler.generate(requests)).map(([reply]) => reply as SampledResponse);
    expect(sampler.cacheBytes).toBe(cacheBytes(decoder.spec, { blocks: 4 }, kind));
    close(bounded, await replies(made, requests), 0.1);
    using service = new Sampler(made, { slots: 4, maxLength: 320, cacheDtype: 'int8', reusePrefixes: true });
    const prompt = Array.from({ length: 100 }, (_, i) => (i * 31) % 120);
    const ask = async (prompt: number[]) =>
      (await service.submit({ prompt, maxNewTokens: 20, temperature: 0, stopIds: [] }).responses)[0] as SampledResponse;
    const first = await ask(prompt);
    const longer = [...prompt, ...first.ids, 5, 6];
    const next = await ask(longer);
    expect(service.promptTokens.reused).toBeGreaterThanOrEqual(118);
    close([next], await replies(made, [{ prompt: longer, maxNewTokens: 20, temperature: 0, stopIds: [] }]), 0.1);
  });

  it('has adapters', async () => {
    using made = modelOf(heads, device, dtype);
    addLora(made, { r: 4 });
    noGrad(() => {
      seed(9);
      for (const [, weight] of made.adapters?.parameters() ?? []) weight.normal_(0, 0.1);
    });
    close(await replies(made, requests), await replies(made, requests, { cacheDtype: 'model' }), 0.2);
  });
});
