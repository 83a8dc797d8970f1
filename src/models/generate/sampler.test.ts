/** The sampler against the trainer's own forward on every family's fixture, and its other guarantees. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { aten, liveTensors, noGrad, scope, seed, type Tensor, tensor } from '../../tensor/index.ts';
import {
  loadModel,
  type Model,
  packSequences,
  type SampledResponse,
  Sampler,
  scoredTokens,
  tokenLogprobs,
} from '../index.ts';

const fixtures = join(import.meta.dirname, '../../../tests/models/fixtures');
const tiny = join(fixtures, 'qwen3');
const PROMPT = [5, 9, 3, 22, 7];

/** log π of the tokens after the prompt, as a trainer computes them. */
function trainerLogprobs(model: Model, prompt: number[], reply: number[], temperature: number): number[] {
  return scope(() =>
    noGrad(() => {
      const ids = [...prompt, ...reply];
      const batch = packSequences([ids]);
      const mask = ids.map((_, i) => (i >= prompt.length ? 1 : 0));
      const hidden = model.decoder.forward(batch);
      return tokenLogprobs(model.decoder, hidden, batch, scoredTokens(batch.starts, mask), temperature).logp.numbers();
    }),
  );
}

function greedyByFullForwards(model: Model, prompt: number[], count: number): number[] {
  const ids = [...prompt];
  for (let i = 0; i < count; i++) {
    ids.push(
      scope(() =>
        noGrad(() => {
          const hidden = model.decoder.forward(packSequences([ids]));
          return model.decoder
            .logits(hidden.narrow(0, ids.length - 1, 1))
            .argmax()
            .item();
        }),
      ),
    );
  }
  return ids.slice(prompt.length);
}

describe('cached decoding', () => {
  // Dynamic rope rotates a cached token by the length at which it was written, so full forwards are no reference there.
  for (const name of readdirSync(fixtures).filter((name) => name !== 'llama-dynamic')) {
    it(`equals full forwards: ${name}`, async () => {
      using model = await loadModel(join(fixtures, name), { dtype: 'float32' });
      using sampler = new Sampler(model);
      const request = { prompt: PROMPT, maxNewTokens: 10 };
      const [[greedy], [drawn]] = (await sampler.generate([
        { ...request, temperature: 0 },
        { ...request, temperature: 0.7, seed: 11 },
      ])) as [[SampledResponse], [SampledResponse]];
      expect(greedy.ids).toEqual(greedyByFullForwards(model, PROMPT, 10));
      const expected = trainerLogprobs(model, PROMPT, drawn.ids, 0.7);
      for (const [i, value] of expected.entries())
        expect(Math.abs(value - (drawn.logprobs[i] as number))).toBeLessThan(1e-5);
    });
  }
});

describe('in bf16', () => {
  // decoded by the plan on a CPU; the trainer's logits are rounded at other places
  for (const name of ['llama', 'mistral', 'qwen2', 'qwen3', 'gpt2'])
    it(`log-probs are the trainer's but for rounding: ${name}`, async () => {
      using model = await loadModel(join(fixtures, name), { dtype: 'bfloat16' });
      using sampler = new Sampler(model);
      const request = { prompt: PROMPT, maxNewTokens: 20, temperature: 1 };
      const replies = await sampler.generate([1, 2, 3, 4].map((seed) => ({ ...request, seed })));
      const gaps = replies.flat().flatMap(({ ids, logprobs }) => {
        const expected = trainerLogprobs(model, PROMPT, ids, 1);
        return expected.map((value, i) => Math.abs(value - (logprobs[i] as number)));
      });
      expect(Math.max(...gaps)).toBeLessThan(0.2);
      expect(gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length).toBeLessThan(0.03);
    });
});

describe('Sampler', () => {
  it('gives a request the same tokens whatever else is in the batch and however many slots there are', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    const requests = Array.from({ length: 7 }, (_, i) => ({
      prompt: PROMPT.slice(0, 1 + (i % 5)),
      maxNewTokens: 4 + 3 * i,
      seed: 100 * i,
      topP: 0.9,
      samples: 1 + (i % 3),
    }));
    using many = new Sampler(model);
    using few = new Sampler(model, { slots: 2 });
    const together = await many.generate(requests);
    const squeezed = await few.generate(requests);
    expect(squeezed).toEqual(together);
    for (const [i, request] of requests.entries()) expect(await many.generate([request])).toEqual([together[i]]);
  });

  it('gives sample i of a group what a request of its own with seed + i gives', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    using sampler = new Sampler(model);
    const [group] = await sampler.generate([{ prompt: PROMPT, maxNewTokens: 8, seed: 5, samples: 3 }]);
    const [[alone]] = (await sampler.generate([{ prompt: PROMPT, maxNewTokens: 8, seed: 7 }])) as [[unknown]];
    expect(group?.[2]).toEqual(alone);
    expect(group?.[0]).not.toEqual(group?.[1]);
  });

  it('ends at a stop id, which is the last token, or at the limit', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    using sampler = new Sampler(model);
    const [[free]] = (await sampler.generate([{ prompt: PROMPT, maxNewTokens: 12, temperature: 0 }])) as [
      [SampledResponse],
    ];
    expect(free.finish).toBe('length');
    expect(free.ids).toHaveLength(12);
    const stop = free.ids[4] as number;
    const first = free.ids.indexOf(stop);
    const [[cut]] = (await sampler.generate([
      { prompt: PROMPT, maxNewTokens: 12, temperature: 0, stopIds: [stop] },
    ])) as [[SampledResponse]];
    expect(cut.finish).toBe('stop');
    expect(cut.ids).toEqual(free.ids.slice(0, first + 1));
  });

  it('calls back token by token and can be cancelled', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    using sampler = new Sampler(model);
    const cancel = new AbortController();
    const seen: number[] = [];
    const onToken = (_: number, id: number) => {
      seen.push(id);
      if (seen.length === 3) cancel.abort();
    };
    const [[reply], [other]] = (await sampler.generate([
      { prompt: PROMPT, maxNewTokens: 30, signal: cancel.signal, onToken },
      { prompt: PROMPT, maxNewTokens: 6 },
    ])) as [[SampledResponse], [SampledResponse]];
    expect(reply.finish).toBe('cancelled');
    expect(reply.ids).toEqual(seen);
    expect(seen).toHaveLength(3);
    expect(other.finish).toBe('length');
  });

  it('uses the weights as they are now, and leaves no tensor behind', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    const request = { prompt: PROMPT, maxNewTokens: 8, temperature: 0 };
    const before = await settledTensors();
    const sampler = new Sampler(model);
    const first = await sampler.generate([request]);
    for (let i = 0; i < 20; i++) await sampler.generate([request]); // it copies matrices after some steps
    const held = await settledTensors();
    for (let i = 0; i < 3; i++) expect(await sampler.generate([request])).toEqual(first);
    expect(liveTensors()).toBe(held);
    noGrad(() => scope(() => void model.decoder.headWeight.mul_(-1)));
    expect(await sampler.generate([request])).not.toEqual(first);
    sampler.dispose();
    expect(liveTensors() - before).toBeLessThanOrEqual(2); // the rope tables, made at first use
  });

  it('says how large its cache will be, and refuses what does not fit', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    using sampler = new Sampler(model, { slots: 3, maxLength: 16 });
    const { spec } = model.decoder;
    const plan = sampler.plan([{ prompt: PROMPT, maxNewTokens: 8 }]);
    expect(plan.bytes).toBe(2 * spec.layers * 3 * 64 * spec.attention.kvHeads * spec.attention.headDim * 4);
    await sampler.generate([{ prompt: PROMPT, maxNewTokens: 8 }]);
    expect(sampler.cacheBytes).toBe(plan.bytes);
    await expect(sampler.generate([{ prompt: PROMPT, maxNewTokens: 12 }])).rejects.toThrow(/needs 17 places/);
    await expect(sampler.generate([{ prompt: [], maxNewTokens: 2 }])).rejects.toThrow(/at least one token/);
    for (const samples of [0, -1, 1.5])
      await expect(sampler.generate([{ prompt: [1], samples, maxNewTokens: 2 }])).rejects.toThrow(
        /expected a whole number/,
      );
    await expect(sampler.generate([{ prompt: PROMPT, maxNewTokens: 2, topP: 0, temperature: -1 }])).rejects.toThrow(
      /temperature -1.*top-p 0/,
    );
  });

  it('takes as many slots as replies, up to 128 while their cache is small and 32 when it is not', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    using sampler = new Sampler(model);
    const slots = (samples: number, maxNewTokens: number) =>
      sampler.plan([{ prompt: PROMPT, maxNewTokens, samples }]).slots;
    expect([slots(7, 8), slots(500, 8), slots(500, 1e6), slots(7, 1e6)]).toEqual([7, 128, 32, 7]);
  });

  it('makes repeated tokens rarer with a repetition penalty', async () => {
    using model = await loadModel(tiny, { dtype: 'float32' });
    using sampler = new Sampler(model);
    const distinct = async (repetitionPenalty: number) => {
      const [[reply]] = (await sampler.generate([
        { prompt: PROMPT, maxNewTokens: 40, temperature: 0, repetitionPenalty },
      ])) as [[SampledResponse]];
      return new Set(reply.ids).size;
    };
    expect(await distinct(5)).toBeGreaterThan(await distinct(1));
  });
});

describe('attune::sample', () => {
  const rows = 4000;
  const logits = [2.0, 1.0, 0.5, 0.0, -1.0];
  function draw(temperature: number, topK: number, topP: number, minP: number): number[] {
    return scope(() => {
      const floats = (value: number) => tensor(new Float32Array(rows).fill(value));
      const whole = (pick: (i: number) => number) =>
        tensor(BigInt64Array.from({ length: rows }, (_, i) => BigInt(pick(i))));
      const all = tensor(
        Float32Array.from({ length: rows * 5 }, (_, i) => logits[i % 5] as number),
        { shape: [rows, 5] },
      );
      const [ids] = aten<[Tensor, Tensor]>(
        'attune::sample',
        all,
        floats(temperature),
        whole(() => topK),
        floats(topP),
        floats(minP),
        whole((i) => i),
        whole(() => 17),
      );
      const counts = [0, 0, 0, 0, 0];
      for (const id of ids.numbers()) counts[id] = (counts[id] as number) + 1;
      return counts.map((count) => count / rows);
    });
  }
  const softmax = (temperature: number, kept: number) => {
    const weights = logits.slice(0, kept).map((z) => Math.exp(z / temperature));
    const total = weights.reduce((a, b) => a + b);
    return [...weights.map((w) => w / total), ...Array(5 - kept).fill(0)] as number[];
  };
  // Over 4,000 draws a frequency is within 4 standard errors (at most 0.032) of its probability.
  const close = (found: number[], expected: number[]) => {
    for (const [i, p] of expected.entries())
      expect(Math.abs((found[i] as number) - p)).toBeLessThan(p === 0 ? 1e-12 : 0.032);
  };

  it('draws from the softmax at a temperature', () => {
    close(draw(1, 0, 1, 0), softmax(1, 5));
    close(draw(2, 0, 1, 0), softmax(2, 5));
  });
  it('keeps the k likeliest, the fewest that hold p, those with a share of the best', () => {
    close(draw(1, 2, 1, 0), softmax(1, 2));
    // probabilities 0.554 0.204 0.124 0.075 …: three hold 0.8
    close(draw(1, 0, 0.8, 0), softmax(1, 3));
    // e^(−1.5) = 0.223 of the best is just kept, e^(−2) = 0.135 is not
    close(draw(1, 0, 1, 0.2), softmax(1, 3));
    // p is of what k left: of 0.73 and 0.27 the first alone holds 0.7
    close(draw(1, 2, 0.7, 0), softmax(1, 1));
  });
  // A nucleus of most of a large vocabulary, one of a few tokens, and one that the vocabulary's first part gives a
  // wrong estimate of.
  for (const [name, slope, lead] of [
    ['flat', 1e-4, 0],
    ['steep', 0.5, 0],
    ['lop-sided', 1e-4, 9],
  ] as const) {
    it(`finds the fewest that hold p in a large vocabulary: ${name}`, () => {
      const [size, draws] = [20_011, 256];
      // rank r is at id 7919·r, so ranks are spread over all ids
      const order = Array.from({ length: size }, (_, rank) => (rank * 7919) % size);
      const logits = new Float32Array(size);
      for (const [rank, id] of order.entries()) logits[id] = -slope * rank + (rank < 3 ? lead : 0);
      const weights = order.map((id) => Math.exp(logits[id] as number));
      const wanted = 0.9 * weights.reduce((a, b) => a + b, 0);
      let held = 0;
      const nucleus = weights.findIndex((weight) => {
        held += weight;
        return held >= wanted;
      });
      scope(() => {
        const each = (value: number) => tensor(new Float32Array(draws).fill(value));
        const whole = (pick: (i: number) => number) =>
          tensor(BigInt64Array.from({ length: draws }, (_, i) => BigInt(pick(i))));
        const rows = tensor(logits).unsqueeze(0).expand(draws, size);
        const [ids] = aten<[Tensor, Tensor]>(
          'attune::sample',
          rows,
          each(1),
          whole(() => 0),
          each(0.9),
          each(0),
          whole((i) => i),
          whole(() => 3),
        );
        const rankOf = new Map(order.map((id, rank) => [id, rank]));
        const ranks = ids.numbers().map((id) => rankOf.get(id) as number);
        // sums in f32 may move the edge by a token or two
        expect(Math.max(...ranks)).toBeLessThanOrEqual(nucleus + 2);
        // this many draws come near the edge of a flat nucleus
        if (nucleus > 100) expect(Math.max(...ranks)).toBeGreaterThan(0.9 * nucleus);
        expect(new Set(ranks).size).toBeGreaterThan(Math.min(nucleus, 40) / 2);
      });
    });
  }
  it('takes the first of the likeliest at temperature 0', () => {
    expect(draw(0, 0, 1, 0)).toEqual([1, 0, 0, 0, 0]);
    seed(0);
  });
});
