/**
 * The captured decoding step against one that is called. A request for the likeliest tokens needs the host between two tokens,
 * so that its steps are not captured: what it says must not change. Neither must it beside a request that is not captured.
 */
import { describe, expect, it } from 'vitest';
import { cacheBytes } from '../../src/models/generate/cache/cache.ts';
import {
  type GenerationRequest,
  initModel,
  type Model,
  type SampledResponse,
  Sampler,
} from '../../src/models/index.ts';
import { cudaCount, type DType, liveTensors, noGrad, type Tensor } from '../../src/tensor/index.ts';
import { device, hasCuda } from './device.ts';

const shape = {
  model_type: 'qwen3',
  vocab_size: 120,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 32,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
};

function model(place: string, dtype: DType): Model {
  const made = initModel(shape, { seed: 1, device: place, dtype });
  noGrad(() => {
    for (const [, parameter] of made.decoder.parameters()) if (parameter.ndim === 1) parameter.fill_(1.1);
  });
  return made;
}

/** More requests than slots, of different lengths: rows come and go while others write. */
const requests: GenerationRequest[] = Array.from({ length: 9 }, (_, i) => ({
  prompt: Array.from({ length: 2 + (i % 4) }, (_, j) => (i * 17 + j * 5 + 3) % 120),
  maxNewTokens: 3 + ((i * 7) % 30),
  temperature: i % 3 === 0 ? 0 : 0.9,
  topP: i % 2 === 0 ? 0.9 : 1,
  topK: i % 4 === 1 ? 20 : 0,
  seed: i,
  stopIds: [],
}));
const penalised: GenerationRequest = {
  prompt: [1, 2],
  maxNewTokens: 40,
  temperature: 0,
  repetitionPenalty: 1.3,
  stopIds: [],
};

async function replies(of: Model, slots: number, all: GenerationRequest[]): Promise<SampledResponse[]> {
  using sampler = new Sampler(of, { slots, maxLength: 64 });
  return (await sampler.generate(all)).map(([reply]) => reply as SampledResponse);
}

function sameReplies(found: readonly SampledResponse[], expected: readonly SampledResponse[], bound: number): void {
  for (const [i, reply] of expected.entries()) {
    expect(found[i]?.ids, `reply ${i}`).toEqual(reply.ids);
    for (const [t, logprob] of reply.logprobs.entries())
      expect(Math.abs((found[i]?.logprobs[t] as number) - logprob), `reply ${i}, token ${t}`).toBeLessThanOrEqual(
        bound,
      );
  }
}

const places = hasCuda ? Array.from({ length: cudaCount() }, (_, i) => `cuda:${i}`) : [device];

describe.each(places)('decoding without the host on %s', (place) => {
  it('says what the general path says, in float32', async () => {
    using made = model(place, 'float32');
    const captured = await replies(made, 4, requests);
    const called = requests.map((request) => ({ ...request, topLogprobs: 1 }));
    sameReplies(captured, await replies(made, 4, called), 1e-4);
    const mixed = await replies(made, 4, [...requests, penalised]);
    sameReplies(captured, mixed.slice(0, -1), 1e-4);
    expect(captured.map((reply) => reply.ids.length)).toEqual(requests.map((request) => request.maxNewTokens));
  });

  it('says the same whoever writes beside it', async () => {
    using made = model(place, 'float32');
    const together = await replies(made, 4, requests);
    const alone: SampledResponse[] = [];
    for (const request of requests) alone.push(...(await replies(made, 1, [request])));
    sameReplies(together, alone, 1e-4);
  });

  it('reads the prompts of a service as others do, the rest of a conversation too', async () => {
    using made = model(place, 'float32');
    using service = new Sampler(made, { slots: 24, maxLength: 128, reusePrefixes: true });
    const asked = requests.map((request, i) => ({ ...request, samples: i === 2 ? 3 : 1 }));
    using plain = new Sampler(made, { slots: 6, maxLength: 128 });
    const expected = (await plain.generate(asked)).flat();
    const followed = await Promise.all(asked.map((request) => service.submit(request).responses));
    sameReplies(followed.flat(), expected, 1e-4);
    const next = asked.map((request, i) => ({
      ...request,
      prompt: [...Array.from(request.prompt), ...(followed[i]?.[0]?.ids ?? []), 7, 8, 9],
      samples: 1,
    }));
    const fresh = (await plain.generate(next)).flat();
    for (const [i, request] of next.entries())
      sameReplies(await service.submit(request).responses, [fresh[i] as SampledResponse], 1e-4);
    expect(service.promptTokens.reused).toBeGreaterThan(0);
  });

  it('says the same while rows of all lengths end and smaller graphs follow', async () => {
    using made = model(place, 'float32');
    const many: GenerationRequest[] = Array.from({ length: 70 }, (_, i) => ({
      prompt: Array.from({ length: 1 + ((i * 29) % 20) }, (_, j) => (i * 17 + j * 5 + 3) % 120),
      maxNewTokens: 2 + ((i * 37) % 43),
      temperature: i % 3 === 0 ? 0 : 0.9,
      seed: i,
      stopIds: i % 5 === 0 ? [7, 30, 60] : [],
    }));
    const called = many.map((request) => ({ ...request, topLogprobs: 1 }));
    sameReplies(await replies(made, 70, many), await replies(made, 70, called), 1e-4);
  });

  // Five steps of a watched look are ahead when the others go on in a smaller graph: none of these may lie beyond a row's blocks.
  it('says the same when the one who follows ends first', async () => {
    using made = model(place, 'float32');
    const others: GenerationRequest[] = Array.from({ length: 64 }, (_, i) => ({
      prompt: Array.from({ length: 1 + i }, (_, j) => (i * 17 + j * 5 + 3) % 120),
      maxNewTokens: 70,
      temperature: 0.9,
      seed: i,
      stopIds: [],
    }));
    const followed = { prompt: [4, 5], maxNewTokens: 7, temperature: 0, stopIds: [] };
    using sampler = new Sampler(made, { slots: 65, maxLength: 192 });
    const all = sampler.generate(others);
    const short = sampler.submit(followed).responses;
    const found = [...(await all), await short].map(([reply]) => reply as SampledResponse);
    const called = [...others, followed].map((request) => ({ ...request, topLogprobs: 1 }));
    using other = new Sampler(made, { slots: 65, maxLength: 192 });
    const expected = (await other.generate(called)).map(([reply]) => reply as SampledResponse);
    sameReplies(found, expected, 1e-4);
  });

  it('is captured once and used again by the same sampler', async () => {
    using made = model(place, 'float32');
    using sampler = new Sampler(made, { slots: 4, maxLength: 64 });
    const first = await sampler.generate(requests);
    const held = liveTensors();
    const second = await sampler.generate(requests);
    expect(second.map(([reply]) => reply?.ids)).toEqual(first.map(([reply]) => reply?.ids));
    // Fewer where the collector has taken something of earlier tests meanwhile.
    expect(liveTensors()).toBeLessThanOrEqual(held);
  });

  it('says the same within a small cache, where rows are preempted and go on', async () => {
    using made = model(place, 'float32');
    const { spec } = made.decoder;
    // the longest sequences take 4 blocks; six of them are written at the same time
    const long = Array.from({ length: 6 }, (_, i) => ({
      prompt: Array.from({ length: [3, 64, 70][i % 3] as number }, (_, j) => (i * 17 + j * 5 + 3) % 120),
      maxNewTokens: 150 + i,
      samples: i === 2 ? 2 : 1,
      temperature: i % 2 === 0 ? 0 : 0.9,
      seed: i,
      stopIds: [],
    }));
    using roomy = new Sampler(made, { slots: 7 });
    const expected = (await roomy.generate(long)).flat();
    expect(roomy.cacheUse).toMatchObject({ used: 0, preemptions: 0 });
    using tight = new Sampler(made, { slots: 7, maxCacheBytes: cacheBytes(spec, { blocks: 11 }, made.decoder) });
    sameReplies((await tight.generate(long)).flat(), expected, 1e-4);
    expect(tight.cacheUse).toMatchObject({ blocks: 11, used: 0 });
    expect(tight.cacheUse.preemptions).toBeGreaterThan(0);
  });

  it('gives the CPU’s greedy tokens', async () => {
    const greedy = requests.map((request) => ({ ...request, temperature: 0 }));
    using here = model('cpu', 'float32');
    using there = model(place, 'float32');
    const weights = new Map(here.decoder.parameters());
    noGrad(() => {
      for (const [name, parameter] of there.decoder.parameters()) parameter.copy_(weights.get(name) as Tensor);
    });
    sameReplies(await replies(there, 4, greedy), await replies(here, 4, greedy), 1e-3);
  });
});
