/**
 * What is decided around captured steps (how many start at once, what a row may write before the host looks again, when rows are
 * preempted, which graph the last rows take), without a GPU: a recorded pass is called again instead of being replayed. The tests
 * of tests/cuda run here that way too.
 */
import { describe, expect, it, vi } from 'vitest';
import type { GenerationRequest, SamplerOptions } from '../src/models/index.ts';

vi.mock('../src/tensor/engine/recording.ts', () => ({
  isRecorded: () => true,
  Recorder: class {
    record(pass: () => void, { hasRun = false } = {}) {
      if (!hasRun) for (let i = 0; i < 3; i++) pass(); // warm-ups
      return { replay: pass };
    }
    follow() {}
    read<T>(body: () => T): T {
      return body();
    }
    dispose() {}
  },
}));

const { Random } = await import('../src/random.ts');
const { noGrad } = await import('../src/tensor/index.ts');
const { addLora, initModel, Sampler } = await import('../src/models/index.ts');
const { Admission } = await import('../src/models/generate/admission.ts');
const { cacheBytes } = await import('../src/models/generate/cache/cache.ts');
const { Stepper } = await import('../src/models/generate/stepper.ts');
await import('./cuda/graph-decoder.test.ts');

const shape = {
  model_type: 'qwen3',
  vocab_size: 60,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
};

function hostile(seed: number, count: number): GenerationRequest[] {
  const random = new Random('lengths', seed);
  const one = <T>(of: readonly T[]): T => of[random.int(0, of.length - 1)] as T;
  return Array.from({ length: count }, (_, i) => ({
    prompt: Array.from({ length: one([1, 2, 44, 63, 64, 65, 128, 200]) }, () => random.int(3, 59)),
    maxNewTokens: one([1, 2, 15, 16, 17, 20, 64, 100, 150]),
    samples: one([1, 1, 2, 4]),
    temperature: one([0, 1]),
    topLogprobs: 0,
    // some end by themselves, so that started steps write behind their ends
    stopIds: one([[], [7], [7, 8, 9, 10]]),
    seed: i,
  }));
}

describe('captured steps', () => {
  const run = async (
    requests: GenerationRequest[],
    options: SamplerOptions & { blocks?: number; watched?: boolean },
  ) => {
    using model = initModel(shape, { seed: 3, dtype: 'float32' });
    const { blocks, watched = false, ...others } = options;
    const bytes = blocks === undefined ? undefined : cacheBytes(model.decoder.spec, { blocks }, model.decoder);
    using sampler = new Sampler(model, {
      slots: 6,
      ...others,
      ...(bytes === undefined ? {} : { maxCacheBytes: bytes }),
    });
    let most = 0;
    const onToken = () => {
      most = Math.max(most, sampler.cacheUse.used);
    };
    const replies = await sampler.generate(requests.map((each) => (watched ? { ...each, onToken } : each)));
    if (bytes !== undefined) expect(sampler.cacheBytes).toBeLessThanOrEqual(bytes);
    if (!options.reusePrefixes) expect(sampler.cacheUse.used).toBe(0);
    const short = replies.map((group) => group.map(({ ids, logprobs, finish }) => ({ ids, logprobs, finish })));
    return { replies: short, preemptions: sampler.cacheUse.preemptions, most };
  };
  // the likeliest tokens are asked of the host at every step: such rows are not captured
  const called = (requests: GenerationRequest[]) => requests.map((each) => ({ ...each, topLogprobs: 1 }));

  it.each([1, 3])('write what called ones write, whatever the bound, round %i', async (round) => {
    const requests = hostile(round, 16);
    const { replies: expected } = await run(called(requests), {});
    let preemptions = 0;
    for (const watched of [false, true])
      for (const blocks of [undefined, 12, 6]) {
        const found = await run(requests, { watched, ...(blocks === undefined ? {} : { blocks }) });
        expect(found.replies).toEqual(expected);
        if (blocks !== undefined) expect(found.most).toBeLessThanOrEqual(blocks);
        else expect(found.preemptions).toBe(0);
        preemptions += found.preemptions;
      }
    expect(preemptions).toBeGreaterThan(0);
  });

  it('go on after preemption in a service, whose prompts are captured too', async () => {
    const requests = [1, 2].map((seed) => ({ prompt: [5, seed], maxNewTokens: 180, stopIds: [], seed }));
    const { replies: expected } = await run(called(requests), {});
    const found = await run(requests, { blocks: 5, maxLength: 192, reusePrefixes: true });
    expect(found.preemptions).toBeGreaterThan(0);
    expect(found.replies.flat().map(({ ids }) => ids)).toEqual(expected.flat().map(({ ids }) => ids));
  });

  it('begin with the first tokens of prompts that took several passes', async () => {
    const random = new Random('passes');
    const requests = Array.from({ length: 36 }, (_, seed) => ({
      prompt: Array.from({ length: 480 }, () => random.int(3, 59)),
      maxNewTokens: 1 + (seed % 3), // some end with their first token
      stopIds: [],
      temperature: 1,
      seed,
    }));
    const { replies: expected } = await run(called(requests), { slots: 36 });
    const { replies } = await run(requests, { slots: 36 });
    expect(replies).toEqual(expected);
  });

  describe('of a row that goes on', () => {
    const long = { prompt: [5, 6, 7], maxNewTokens: 120, stopIds: [], seed: 1 };
    const short = { prompt: [9, 9], maxNewTokens: 20, stopIds: [], seed: 4 };
    const open = () => {
      const model = initModel(shape, { seed: 3, dtype: 'float32' });
      addLora(model, { r: 2, alpha: 4, name: 'one' });
      noGrad(() => {
        for (const [, weight] of model.adapters?.parameters() ?? []) weight.normal_(0, 0.3);
      });
      return model;
    };

    it('are not repeated after it took steps of its own beside another adapter', async () => {
      using model = open();
      using sampler = new Sampler(model, { slots: 4, maxLength: 128 });
      const [expected] = await sampler.submit(long).responses;
      const going = sampler.submit(long);
      let tokens = 0;
      for await (const batch of going.batches()) {
        if (tokens < 10 && tokens + batch.length >= 10) await sampler.submit({ ...short, adapter: null }).responses;
        tokens += batch.length;
      }
      expect((await going.responses)[0]).toEqual(expected);
    });

    it.each(['one', null])('let a request enter that a callback submits, with adapter %s', async (adapter) => {
      using model = open();
      using sampler = new Sampler(model, { slots: 4, maxLength: 128 });
      const [expected] = await sampler.submit(long).responses;
      const [other] = await sampler.submit({ ...short, adapter }).responses;
      for (const at of [5, 17, 18]) {
        let tokens = 0;
        let before = 0;
        let second: ReturnType<typeof sampler.submit> | undefined;
        const onToken = () => {
          if (++tokens === at) second = sampler.submit({ ...short, adapter, onToken: () => (before = tokens) });
        };
        expect((await sampler.submit({ ...long, onToken }).responses)[0]).toEqual(expected);
        expect((await second?.responses)?.[0]).toEqual(other);
        expect(before).toBeLessThan(long.maxNewTokens); // it did not wait for the first one's end
      }
    });
  });

  it('do not go on with rows that are done', async () => {
    const going: number[] = [];
    const original = Stepper.prototype.logits;
    const logits = vi.spyOn(Stepper.prototype, 'logits').mockImplementation(function (
      this: InstanceType<typeof Stepper>,
      ...all
    ) {
      going.push(all[0].positions.numbers().filter((position) => position > 0).length);
      return original.apply(this, all);
    });
    const requests = Array.from({ length: 8 }, (_, i) => ({
      prompt: [5, 6],
      maxNewTokens: i < 3 ? 20 : 120, // five rows take the same graph as eight
      stopIds: [],
      seed: i,
    }));
    await run(requests, { slots: 8 });
    logits.mockRestore();
    expect(going.slice(0, 16)).toEqual(Array(16).fill(8));
    expect(going.slice(60)).toEqual(Array(going.length - 60).fill(5));
  });

  // Looks of five and of sixteen tokens, steps ahead and smaller graphs follow one another: a request that is followed ends among others that
  // are not. Its length decides what is under way then.
  it.each([2, 3, 9])('write no further than the blocks that were given out, %i rows', async (count) => {
    using model = initModel(shape, { seed: 3, dtype: 'float32' });
    const ends = new Map<number, number>(); // by slot: where the places end that a row may write to
    let beyond = 0;
    const { reserve } = Admission.prototype;
    using _reserving = vi.spyOn(Admission.prototype, 'reserve').mockImplementation(function (
      this: InstanceType<typeof Admission>,
      ...all
    ) {
      const [inFlight, steps] = all;
      const isDone = reserve.apply(this, all);
      for (const row of inFlight.flatMap(({ rows }) => rows))
        if (row.slot >= 0) ends.set(row.slot, Math.min(row.position + steps, row.mostPositions));
      return isDone;
    });
    const { logits } = Stepper.prototype;
    using _stepping = vi.spyOn(Stepper.prototype, 'logits').mockImplementation(function (
      this: InstanceType<typeof Stepper>,
      ...all
    ) {
      const [positions, slots] = [all[0].positions.numbers(), all[0].slots.numbers()];
      for (const [i, slot] of slots.entries())
        if (slot < count) beyond = Math.max(beyond, 1 + (positions[i] as number) - (ends.get(slot) as number));
      return logits.apply(this, all);
    });
    for (const length of [1, 4, 5, 6, 7, 10, 11, 12, 16, 17, 22, 27]) {
      using sampler = new Sampler(model, { slots: count, maxLength: 128 });
      const others = Array.from({ length: count - 1 }, (_, seed) => ({
        prompt: [5, 6],
        maxNewTokens: 60,
        stopIds: [],
        seed,
      }));
      const all = sampler.generate(others);
      await sampler.submit({ prompt: [4, 5], maxNewTokens: length, stopIds: [] }).responses;
      await all;
      expect(beyond, `${length} tokens`).toBe(0);
    }
    expect(ends.size).toBe(count);
  });

  it('are of as few rows as there are, rounded up to a power of two', async () => {
    const sizes: number[] = [];
    const original = Stepper.prototype.logits;
    const logits = vi.spyOn(Stepper.prototype, 'logits').mockImplementation(function (
      this: InstanceType<typeof Stepper>,
      ...all
    ) {
      sizes.push(all[0].ids.size(0));
      return original.apply(this, all);
    });
    const requests = Array.from({ length: 11 }, (_, i) => ({
      prompt: [5, 6],
      maxNewTokens: 40 * (i + 1),
      stopIds: [],
      seed: i,
    }));
    await run(requests, { slots: 11 });
    logits.mockRestore();
    expect(new Set(sizes)).toEqual(new Set([11, 8, 4, 2, 1]));
    expect(sizes).toEqual([...sizes].sort((a, b) => b - a));
  });
});
