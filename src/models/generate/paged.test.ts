/**
 * The paged cache: its bound under a hostile mix of lengths, preemption, shared blocks, and that every block is
 * returned.
 */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.ts';
import { Random } from '../../random.ts';
import { noGrad, seed } from '../../tensor/index.ts';
import {
  addLora,
  createSampler,
  type GenerationRequest,
  loadModel,
  type Model,
  type SampledResponse,
  Sampler,
  type SamplerOptions,
} from '../index.ts';
import { Blocks } from './cache/blocks.ts';
import { BLOCK, blocksInFlight, cacheBytes } from './cache/cache.ts';
import { filled, SHAPE } from './small-model.test-support.ts';

const tiny = join(import.meta.dirname, '../../../tests/models/fixtures/qwen3');
const open = () => loadModel(tiny, { dtype: 'float32' });
const tokens = (random: Random, count: number) => Array.from({ length: count }, () => random.int(3, 39));

/** The bytes of a cache of this many blocks. */
const bytesOf = ({ decoder }: Model, blocks: number) => cacheBytes(decoder.spec, { blocks }, decoder);

/** Requests of all lengths: some of one token, some that take most of a cache of six blocks. */
function hostile(random: Random, count: number): GenerationRequest[] {
  const rules = [{ temperature: 0 }, {}, { topP: 0.8 }, { topK: 5, temperature: 1.3 }, { repetitionPenalty: 1.3 }];
  return Array.from({ length: count }, (_, i) => ({
    prompt: tokens(random, [1, 2, 63, 64, 65, 128, 130, 200][random.int(0, 7)] as number),
    maxNewTokens: [1, 2, 30, 64, 100, 150][random.int(0, 5)] as number,
    samples: [1, 1, 1, 2, 4][random.int(0, 4)] as number,
    seed: i,
    ...rules[random.int(0, rules.length - 1)],
  }));
}

/**
 * Generates with a bound of this many blocks; checks that it holds at every token, and that all blocks are returned.
 */
async function bounded(
  model: Model,
  requests: readonly GenerationRequest[],
  blocks: number,
  options: SamplerOptions = {},
) {
  using sampler = new Sampler(model, { slots: 6, ...options, maxCacheBytes: bytesOf(model, blocks) });
  let most = 0;
  const onToken = () => {
    most = Math.max(most, sampler.cacheUse.used);
  };
  const responses = await sampler.generate(requests.map((request) => ({ ...request, onToken })));
  expect(sampler.cacheBytes).toBeLessThanOrEqual(bytesOf(model, blocks));
  expect(most).toBeLessThanOrEqual(blocks);
  if (!options.reusePrefixes) expect(sampler.cacheUse.used).toBe(0);
  return { responses, most, preemptions: sampler.cacheUse.preemptions };
}

async function unbounded(model: Model, requests: readonly GenerationRequest[]): Promise<SampledResponse[][]> {
  using sampler = new Sampler(model, { slots: 6 });
  const responses = await sampler.generate(requests);
  expect(sampler.cacheUse).toMatchObject({ used: 0, preemptions: 0 });
  return responses;
}

describe('a bounded cache', () => {
  for (const round of [1, 2, 3]) {
    it(`holds its bound and writes the same tokens and log-probs as without one, round ${round}`, async () => {
      using model = await open();
      const requests = hostile(new Random('hostile', round), 20);
      const { responses, most, preemptions } = await bounded(model, requests, 6);
      expect(responses).toEqual(await unbounded(model, requests));
      expect(most).toBe(6);
      expect(preemptions).toBeGreaterThan(0);
    });
  }

  it('holds it with prefixes that are kept, which are given up first', async () => {
    using model = await open();
    const requests = hostile(new Random('hostile', 4), 16);
    const { responses } = await bounded(model, requests, 6, { reusePrefixes: true, maxLength: 384 });
    const expected = await unbounded(model, requests);
    expect(responses.flat().map(({ ids }) => ids)).toEqual(expected.flat().map(({ ids }) => ids));
  });

  it('preempts rows of windowed attention, of several adapters and of the general path, with the same numbers', async () => {
    seed(7);
    using windowed = filled({ ...SHAPE, model_type: 'mistral', sliding_window: 40, max_position_embeddings: 512 });
    using other = filled({ model_type: 'gpt2', vocab_size: 40, n_embd: 24, n_layer: 2, n_head: 4, n_positions: 512 });
    using adapted = await open();
    for (const name of ['one', 'two']) {
      addLora(adapted, { r: 2, alpha: 4, name });
      noGrad(() => {
        for (const [, weight] of adapted.adapters?.parameters() ?? []) weight.normal_(0, 0.3);
      });
    }
    for (const model of [windowed, other]) {
      const requests = hostile(new Random('kinds', 1), 16);
      const { responses, preemptions } = await bounded(model, requests, 6);
      expect(responses).toEqual(await unbounded(model, requests));
      expect(preemptions).toBeGreaterThan(0);
    }
    // With adapters, the last bits of a prompt's numbers depend on what is read with it, whether or not it was
    // preempted.
    const requests = [1, 2, 3].map((length, i) => ({
      prompt: tokens(new Random('adapters', i), length),
      maxNewTokens: 150,
      seed: i,
      adapter: ['one', 'two', null][i] as string | null,
    }));
    const { responses, preemptions } = await bounded(adapted, requests, 6);
    expect(preemptions).toBeGreaterThan(0);
    for (const [i, [expected]] of (await unbounded(adapted, requests)).entries()) {
      const found = responses[i]?.[0] as SampledResponse;
      expect(found.ids).toEqual(expected?.ids);
      for (const [t, logprob] of found.logprobs.entries())
        expect(Math.abs(logprob - (expected?.logprobs[t] as number))).toBeLessThan(1e-5);
    }
  });

  it('is refused where it holds nothing', async () => {
    using model = await open();
    const least = bytesOf(model, 1);
    expect(() => createSampler(model, { maxCacheBytes: least - 1 })).toThrow(
      `the least, 64 tokens, takes ${least} bytes`,
    );
    createSampler(model, { maxCacheBytes: least }).dispose();
  });

  it('refuses a request that does not fit alone, when it is submitted', async () => {
    using model = await open();
    using sampler = createSampler(model, { maxCacheBytes: bytesOf(model, 2) });
    const request = { prompt: [5], maxNewTokens: 2 * BLOCK - 1 };
    expect(() => sampler.submit({ ...request, maxNewTokens: 2 * BLOCK })).toThrow(
      /needs 129 places; a cache of \d+ bytes \(maxCacheBytes\) has 128/,
    );
    expect(() => sampler.submit({ ...request, maxNewTokens: 2 * BLOCK })).toThrow(UserError);
    expect((await sampler.submit(request).responses)[0]?.ids).toHaveLength(2 * BLOCK - 1);
  });

  it('also bounds the length of a sequence, which is planned before the start', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 2, maxLength: 300, maxCacheBytes: bytesOf(model, 3) });
    expect(sampler.plan([])).toMatchObject({ length: 3 * BLOCK, blocks: 3 });
    using larger = createSampler(model, { slots: 2, maxLength: 300, maxCacheBytes: bytesOf(model, 9) });
    expect(larger.plan([])).toMatchObject({ length: 300, blocks: 9 });
  });

  it('is planned for any number of requests', async () => {
    using model = await open();
    using sampler = new Sampler(model, { slots: 4 });
    const requests = Array.from({ length: 200_000 }, () => ({ prompt: [5], maxNewTokens: 1 }));
    expect(sampler.plan(requests)).toMatchObject({ slots: 4, blocks: 4 });
  });

  it('is empty after the sampler was disposed while it wrote', async () => {
    using model = await open();
    const sampler = createSampler(model, { slots: 4 });
    const submission = sampler.submit({ prompt: [5], maxNewTokens: 1000, stopIds: [] });
    await submission[Symbol.asyncIterator]().next();
    expect(sampler.cacheUse.used).toBeGreaterThan(0);
    sampler.dispose();
    await expect(submission.responses).rejects.toThrow('disposed');
    expect(sampler.cacheUse).toMatchObject({ blocks: 0, used: 0 });
  });

  it('frees the blocks of rows that are cancelled, failed or wait after preemption', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 4, maxCacheBytes: bytesOf(model, 4) });
    const endless = { prompt: [5, 6], maxNewTokens: 4 * BLOCK - 2 };
    const running = [1, 2, 3, 4].map((seed) => sampler.submit({ ...endless, seed }));
    const failing = sampler.submit({
      prompt: [7],
      maxNewTokens: 9,
      onToken: () => {
        throw new UserError('mine');
      },
    });
    for await (const _ of running[0] as (typeof running)[0]) if (sampler.cacheUse.preemptions > 0) break;
    for (const each of running) each.cancel();
    for (const { responses } of running) expect((await responses)[0]?.finish).toBe('cancelled');
    await expect(failing.responses).rejects.toThrow('mine');
    expect(sampler.cacheUse.used).toBe(0);
    expect(sampler.waiting).toBe(0);
    expect((await sampler.submit({ ...endless, maxNewTokens: 3 }).responses)[0]?.ids).toHaveLength(3);
  });
});

describe('shared blocks', () => {
  it("counts a prompt's full blocks once for all its samples", async () => {
    using model = await open();
    using sampler = new Sampler(model);
    const prompt = tokens(new Random('shared', 1), 2 * BLOCK + 10);
    let most = 0;
    const onToken = () => {
      most = Math.max(most, sampler.cacheUse.used);
    };
    const request = { prompt, maxNewTokens: 20, samples: 8, seed: 3 };
    const plan = sampler.plan([request]);
    // in sixteenths of 8 slots of 3 blocks
    expect(plan).toMatchObject({ slots: 8, blocks: 10, bytes: bytesOf(model, 10) });
    const [group] = (await sampler.generate([{ ...request, onToken }])) as [SampledResponse[]];
    expect(most).toBe(2 + 8);
    expect(sampler.promptTokens.computed).toBe(prompt.length);
    for (const i of [0, 5]) {
      const [[alone]] = (await sampler.generate([{ prompt, maxNewTokens: 20, seed: 3 + i }])) as [[SampledResponse]];
      expect(group[i]).toEqual(alone);
    }
  });

  it('copies a partial block before it is written to, and shares the full ones, over turns and branches', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 6, maxLength: 6 * BLOCK, reusePrefixes: true });
    const random = new Random('branches', 1);
    const alone = async (request: GenerationRequest) => {
      using fresh = new Sampler(model);
      return (await fresh.generate([request]))[0]?.[0] as SampledResponse;
    };
    const system = tokens(random, 2 * BLOCK + 30);
    const first = (await sampler.submit({ prompt: system, maxNewTokens: 90, seed: 1 }).responses)[0] as SampledResponse;
    const used = sampler.cacheUse.used;
    // three conversations that branch off in the middle of a block, at the same time
    const branches = [1, 2, 3].map((seed) => ({ prompt: [...system, 4 + seed, 9], maxNewTokens: 20, seed }));
    const answers = await Promise.all(branches.map((request) => sampler.submit(request).responses));
    for (const [i, request] of branches.entries()) expect(answers[i]?.[0]?.ids).toEqual((await alone(request)).ids);
    // each took one block of its own; the system prompt's two full blocks are shared
    expect(sampler.cacheUse.used).toBe(used + 3);
    // the first conversation continues unchanged
    const next = { prompt: [...system, ...first.ids, 8, 8], maxNewTokens: 12, seed: 9 };
    const before = sampler.promptTokens.computed;
    expect((await sampler.submit(next).responses)[0]?.ids).toEqual((await alone(next)).ids);
    expect(sampler.promptTokens.computed - before).toBe(3);
  });

  describe('of a conversation', () => {
    const system = tokens(new Random('waiting', 1), 2 * BLOCK + 30);
    /** A conversation of three blocks, and two responses of two blocks that are being written. */
    const busy = async (model: Model, limits: SamplerOptions) => {
      const sampler = createSampler(model, { maxLength: 6 * BLOCK, reusePrefixes: true, ...limits });
      const [{ ids }] = (await sampler.submit({ prompt: system, maxNewTokens: 9, stopIds: [] }).responses) as [
        SampledResponse,
      ];
      const begun = [1, 2].map(() => Promise.withResolvers<void>());
      const others = begun.map(({ resolve }, i) =>
        sampler.submit({
          prompt: [5 + i],
          maxNewTokens: 2 * BLOCK - 1 - 20 * i,
          seed: i,
          stopIds: [],
          onToken: () => resolve(),
        }),
      );
      await Promise.all(begun.map(({ promise }) => promise));
      return { sampler, others, next: { prompt: [...system, ...ids, 8, 8], maxNewTokens: 2 * BLOCK } };
    };

    it('are kept while its next turn waits, for a slot or for blocks', async () => {
      using model = await open();
      for (const limits of [{ slots: 2 }, { slots: 6, maxCacheBytes: bytesOf(model, 7) }]) {
        const { sampler, others, next } = await busy(model, limits);
        using _ = sampler;
        const before = sampler.promptTokens.reused;
        const turn = sampler.submit(next).responses;
        await others[1]?.responses;
        await turn;
        expect(sampler.promptTokens.reused - before).toBe(next.prompt.length - 3);
        expect(sampler.cacheUse.preemptions).toBe(0);
      }
    });

    it('are not given up for a request that would not fit without them either', async () => {
      using model = await open();
      const { sampler, others } = await busy(model, { slots: 6, maxCacheBytes: bytesOf(model, 7) });
      using _ = sampler;
      const large = sampler.submit({ prompt: tokens(new Random('large', 1), 3 * BLOCK), maxNewTokens: BLOCK });
      let least = 7;
      for await (const _ of others[1] as (typeof others)[0]) least = Math.min(least, sampler.cacheUse.used);
      expect(least).toBeGreaterThanOrEqual(3 + 2);
      await large.responses;
    });
  });

  it('is bounded by what can be written at the same time', () => {
    const request = (prompt: number, maxNewTokens: number, samples = 1) => ({
      prompt: { length: prompt },
      maxNewTokens,
      samples,
    });
    expect(blocksInFlight([request(100, 28), request(1, 1)], 4)).toBe(2 + 1);
    expect(blocksInFlight([request(128, 64, 4)], 4)).toBe(2 + 4);
    expect(blocksInFlight([request(128, 64, 4)], 2)).toBe(6);
    // more samples than slots: later ones do not share
    expect(blocksInFlight([request(640, 64, 4)], 2)).toBe(2 * 11);
    expect(blocksInFlight([request(640, 64, 4), request(640, 64, 4)], 5)).toBe(2 * 14);
    expect(blocksInFlight([request(1, 1), request(64, 64), request(10, 400)], 2)).toBe(2 + 7);
  });
});

describe('Blocks', () => {
  it('gives a block to one holder after the last one has released it', () => {
    const blocks = new Blocks(2);
    const [a, b] = [blocks.take(), blocks.take()];
    expect([a, b].sort()).toEqual([0, 1]);
    expect(() => blocks.take()).toThrow(/no block/);
    blocks.hold([a]);
    blocks.release([a, b]);
    expect([blocks.free, blocks.used, blocks.holders(a)]).toEqual([1, 1, 1]);
    blocks.release([a]);
    expect(blocks.used).toBe(0);
    expect(() => blocks.release([a])).toThrow(/free block/);
  });
});
