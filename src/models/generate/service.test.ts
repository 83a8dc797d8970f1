/** The sampler as a service: requests that come and go at any time, against the same requests alone. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { UserError } from '../../errors.ts';
import { Random } from '../../random.ts';
import { liveTensors, noGrad, scope } from '../../tensor/index.ts';
import {
  addLora,
  createSampler,
  type GenerationRequest,
  loadModel,
  type Model,
  QueueFullError,
  type SampledResponse,
  Sampler,
  SamplerDisposedError,
  setAdapter,
  type Token,
  unloadAdapters,
  WeightsChangedError,
} from '../index.ts';
import { FairQueue } from './queue.ts';

const tiny = join(import.meta.dirname, '../../../tests/models/fixtures/qwen3');
const open = () => loadModel(tiny, { dtype: 'float32' });
const turn = () => new Promise((resolve) => setImmediate(resolve));

async function alone(model: Model, request: GenerationRequest): Promise<SampledResponse> {
  using sampler = new Sampler(model);
  const [[response]] = (await sampler.generate([request])) as [[SampledResponse]];
  return response;
}

/** A random prompt, rule, seed and length. */
function randomRequest(random: Random): GenerationRequest {
  const rules = [{ temperature: 0 }, {}, { topP: 0.8 }, { topK: 5, temperature: 1.3 }, { repetitionPenalty: 1.3 }];
  return {
    prompt: Array.from({ length: 1 + random.int(0, 6) }, () => random.int(0, 60)),
    maxNewTokens: 1 + random.int(0, 24),
    seed: random.uint32(),
    client: `client ${random.int(0, 3)}`,
    ...rules[random.int(0, rules.length - 1)],
  };
}

describe('Sampler.generate', () => {
  it('gives two calls at once the right text each', async () => {
    using model = await open();
    using sampler = new Sampler(model);
    const requests = Array.from({ length: 4 }, (_, i) => ({ prompt: [5 + i, 9, 3], maxNewTokens: 30 + i, seed: i }));
    const expected = await Promise.all(requests.map((request) => alone(model, request)));
    const calls = await Promise.all(requests.map((request) => sampler.generate([request])));
    expect(calls).toEqual(expected.map((response) => [[response]]));
  });

  it('makes a longer cache for a call that needs one while another is being written', async () => {
    using model = await open();
    using sampler = new Sampler(model);
    const short = { prompt: [5], maxNewTokens: 40, seed: 1 };
    const long = { prompt: [6], maxNewTokens: 100, seed: 2 };
    const expected = [await alone(model, short), await alone(model, long)];
    const first = sampler.generate([short]);
    await turn();
    const second = sampler.generate([long]);
    expect([await first, await second]).toEqual(expected.map((response) => [[response]]));
  });
});

describe('Sampler.submit', () => {
  it('gives every request what it gets alone, with random arrivals and cancellations', async () => {
    using model = await open();
    for (const seed of [1, 2, 3]) {
      const random = new Random('service', seed);
      using sampler = createSampler(model, { slots: 3, maxLength: 32, reusePrefixes: seed === 3 });
      const running = Array.from({ length: 24 }, () => ({ request: randomRequest(random), stopAt: random.int(0, 40) }));
      const outcomes = running.map(async ({ request, stopAt }, i) => {
        for (let wait = 0; wait < (i * 7) % 11; wait++) await turn();
        const submission = sampler.submit(request);
        const seen: Token[] = [];
        for await (const token of submission) {
          seen.push(token);
          if (seen.length > stopAt) break;
        }
        return { seen, response: (await submission.responses)[0] as SampledResponse };
      });
      for (const [i, { seen, response }] of (await Promise.all(outcomes)).entries()) {
        const { request, stopAt } = running[i] as (typeof running)[number];
        const expected = await alone(model, request);
        expect(response.ids).toEqual(expected.ids.slice(0, response.ids.length));
        expect(seen.map((token) => token.id)).toEqual(response.ids.slice(0, seen.length));
        for (const [t, logprob] of response.logprobs.entries())
          expect(Math.abs(logprob - (expected.logprobs[t] as number))).toBeLessThan(seed === 3 ? 1e-4 : 1e-30);
        if (expected.ids.length <= stopAt) expect(response.ids).toEqual(expected.ids);
        else expect(response.finish === 'cancelled' || response.ids.length === expected.ids.length).toBe(true);
      }
    }
  });

  it('gives a slow reader all that was written since, at once', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 3, maxLength: 32 });
    const request = { prompt: [3, 4, 5], maxNewTokens: 12, seed: 2, stopIds: [] };
    const submission = sampler.submit(request);
    const batches = submission.batches();
    const first = (await batches.next()).value as readonly Token[];
    const [response] = await submission.responses;
    // On a slow machine all tokens may have been written before the first look.
    const { value, done } = await batches.next();
    const rest = done ? [] : (value as readonly Token[]);
    expect([...first, ...rest].map(({ id }) => id)).toEqual(response?.ids);
    expect((await batches.next()).done).toBe(true);
  });

  it('leaves no tensor behind', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 2, maxLength: 32, reusePrefixes: true });
    const round = async () => {
      const kept = [1, 2, 3].map((seed) => sampler.submit({ prompt: [4, seed], maxNewTokens: 9, seed }));
      kept[1]?.cancel();
      await Promise.all(kept.map((submission) => submission.responses));
    };
    for (let i = 0; i < 4; i++) await round(); // it copies matrices after some steps
    const before = await settledTensors();
    for (let i = 0; i < 3; i++) await round();
    expect(liveTensors()).toBe(before);
  });

  it('frees the slot of a cancelled request at once, by signal, by cancel and by a consumer that leaves', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 1, maxLength: 2000 });
    const stop = new AbortController();
    const endless = { prompt: [5], maxNewTokens: 1900 };
    const bySignal = sampler.submit({ ...endless, signal: stop.signal });
    const byCancel = sampler.submit(endless);
    const byLeaving = sampler.submit(endless);
    const never = sampler.submit(endless);
    const last = sampler.submit({ prompt: [5], maxNewTokens: 3 });
    for await (const _ of bySignal) if (!stop.signal.aborted) stop.abort();
    for await (const _ of byCancel) byCancel.cancel();
    for await (const _ of byLeaving) break;
    never.cancel();
    expect((await last.responses)[0]?.finish).toBe('length');
    for (const { responses } of [bySignal, byCancel, byLeaving]) {
      const [response] = (await responses) as [SampledResponse];
      expect(response.finish).toBe('cancelled');
      expect(response.ids.length).toBeLessThan(1900);
    }
    expect((await never.responses)[0]).toMatchObject({ finish: 'cancelled', ids: [] });
  });

  it('fails a waiting request whose adapter is taken off the model, and no other', async () => {
    using model = await open();
    addLora(model, { r: 2, alpha: 4, name: 'one' });
    using sampler = createSampler(model, { slots: 2, maxLength: 32 });
    const [base, gone] = [null, 'one'].map((adapter) => sampler.submit({ prompt: [5], maxNewTokens: 3, adapter }));
    unloadAdapters(model);
    addLora(model, { r: 2, alpha: 4, name: 'two' });
    expect((await base?.responses)?.[0]?.ids).toHaveLength(3);
    await expect(gone?.responses).rejects.toThrow('The adapter "one" was taken off the model');
  });

  it('refuses more than may wait, with an error of its own', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 1, maxLength: 64, maxWaiting: 3 });
    const request = { prompt: [5], maxNewTokens: 8 };
    const taken = [sampler.submit(request), sampler.submit({ ...request, samples: 2 })];
    expect(() => sampler.submit(request)).toThrow(QueueFullError);
    await Promise.all(taken.map((submission) => submission.responses));
    await sampler.submit(request).responses;
    expect(() => sampler.submit({ ...request, maxNewTokens: 64 })).toThrow(/needs 65 places/);
  });

  it('admits clients in turn, however much one of them asked for', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 1, maxLength: 16 });
    const order: string[] = [];
    const ask = (client: string) =>
      sampler.submit({ prompt: [5], maxNewTokens: 1, client, onToken: () => void order.push(client) }).responses;
    await Promise.all([...'aaaaabbc'].map(ask));
    expect(order.join('')).toBe('abcabaaa');
  });

  it('tells who still waits when it is disposed, and takes no more', async () => {
    using model = await open();
    const before = await settledTensors();
    const sampler = createSampler(model, { slots: 1, maxLength: 2000 });
    const endless = { prompt: [5], maxNewTokens: 1900 };
    const waiters = [sampler.submit(endless), sampler.submit(endless)];
    const generated = sampler.generate([{ prompt: [5], maxNewTokens: 3 }]);
    generated.catch(() => {});
    for await (const _ of waiters[0] as (typeof waiters)[0]) {
      sampler.dispose();
      break;
    }
    for (const { responses } of waiters) await expect(responses).rejects.toThrow(SamplerDisposedError);
    await expect(generated).rejects.toThrow(SamplerDisposedError);
    expect(() => sampler.submit(endless)).toThrow(SamplerDisposedError);
    await turn();
    expect(liveTensors() - before).toBeLessThanOrEqual(2); // the rope tables
  });

  it('fails what is in flight when the weights change, and goes on with new ones', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 2, maxLength: 2000, reusePrefixes: true });
    const stale = sampler.submit({ prompt: [5, 9], maxNewTokens: 1900 });
    await turn();
    await turn();
    noGrad(() => scope(() => void model.decoder.headWeight.mul_(-1)));
    await expect(stale.responses).rejects.toThrow(WeightsChangedError);
    const request = { prompt: [5, 9, 4], maxNewTokens: 8, temperature: 0 };
    const [response] = await sampler.submit(request).responses;
    expect(response).toEqual(await alone(model, request));
    expect(sampler.promptTokens.reused).toBe(0);
  });

  it('begins again as a new one after reserve: what was written before decides no bit', async () => {
    using model = await open();
    const turns = async (sampler: Sampler) => {
      const [first] = await sampler.submit({ prompt: [5, 9, 3], maxNewTokens: 6, seed: 1 }).responses;
      const prompt = [5, 9, 3, ...(first?.ids ?? []), 7];
      return [first, ...(await sampler.submit({ prompt, maxNewTokens: 6, seed: 2 }).responses)];
    };
    using fresh = createSampler(model, { reusePrefixes: true });
    fresh.reserve({ responses: 2, length: 24 });
    const expected = await turns(fresh);
    expect(fresh.promptTokens.reused).toBeGreaterThan(0);
    using used = createSampler(model, { reusePrefixes: true });
    used.reserve({ responses: 4, length: 200 });
    await turns(used);
    for (let i = 0; i < 2; i++) {
      used.reserve({ responses: 2, length: 24 });
      const { reused } = used.promptTokens;
      expect(await turns(used)).toEqual(expected);
      expect(used.promptTokens.reused - reused).toBe(fresh.promptTokens.reused);
    }
    const writing = used.submit({ prompt: [5], maxNewTokens: 20 });
    expect(() => used.reserve({ responses: 1, length: 8 })).toThrow('A sampler that is writing');
    writing.cancel();
    await writing.responses;
  });

  it("ends a request whose callback throws with the callback's error, and no other", async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 3, maxLength: 32 });
    const request = { prompt: [5], maxNewTokens: 6, seed: 3 };
    const fault = () => {
      throw new UserError('mine');
    };
    const loud = sampler.submit({ ...request, onToken: fault });
    const tied = sampler.submit({ ...request, allow: fault });
    const quiet = sampler.submit(request);
    await expect(loud.responses).rejects.toThrow('mine');
    await expect(tied.responses).rejects.toThrow('mine');
    expect((await quiet.responses)[0]).toEqual(await alone(model, request));
    await expect(sampler.submit({ ...request, allow: () => [] }).responses).rejects.toThrow(/no token is allowed/);
  });
});

describe('prefix reuse', () => {
  it("does not compute a conversation's earlier turns again, and writes the same tokens", async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 3, maxLength: 128, reusePrefixes: true });
    let prompt = [5, 9, 3, 22, 7];
    for (let turn = 0; turn < 4; turn++) {
      const request = { prompt, maxNewTokens: 12, seed: turn };
      const before = { ...sampler.promptTokens };
      const [response] = (await sampler.submit(request).responses) as [SampledResponse];
      const fresh = await alone(model, request);
      expect(response.ids).toEqual(fresh.ids);
      for (const [i, logprob] of fresh.logprobs.entries())
        expect(Math.abs(logprob - (response.logprobs[i] as number))).toBeLessThan(1e-5);
      // the response's last token was never fed to the model, and three tokens are new
      expect(sampler.promptTokens.computed - before.computed).toBe(turn === 0 ? 5 : 4);
      prompt = [...prompt, ...response.ids, 11, 12, 13];
    }
  });

  it('copies a beginning that is still being written or that others may need, and gives up the oldest', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 2, maxLength: 64, reusePrefixes: true });
    const system = Array.from({ length: 20 }, (_, i) => i + 3);
    for (const [i, samples] of [1, 1, 2, 1, 2].entries()) {
      const request = { prompt: [...system, 30 + i, 31], maxNewTokens: 6, seed: i, samples };
      const responses = await sampler.submit(request).responses;
      for (const [k, response] of responses.entries())
        expect(response.ids).toEqual((await alone(model, { ...request, samples: 1, seed: i + k })).ids);
    }
    expect(sampler.promptTokens).toEqual({ computed: 22 + 4 * 2, reused: 4 * 20 });
    const first = sampler.submit({ prompt: [50, 51, 52, 53], maxNewTokens: 40 });
    await turn();
    const reused = sampler.promptTokens.reused;
    const second = sampler.submit({ prompt: [50, 51, 52, 9], maxNewTokens: 4 });
    const expected = await alone(model, { prompt: [50, 51, 52, 9], maxNewTokens: 4 });
    expect((await second.responses)[0]?.ids).toEqual(expected.ids);
    expect(sampler.promptTokens.reused - reused).toBe(3);
    await first.responses;
  });

  it('a conversation keeps its slot if its last tokens come back otherwise', async () => {
    using model = await open();
    using sampler = createSampler(model, { slots: 2, maxLength: 64, reusePrefixes: true });
    const [one, other] = [3, 33].map((first) => Array.from({ length: 20 }, (_, i) => first + i)) as [
      number[],
      number[],
    ];
    await sampler.submit({ prompt: one, maxNewTokens: 6, seed: 1 }).responses;
    await sampler.submit({ prompt: other, maxNewTokens: 6, seed: 2 }).responses;
    // without the response, as when a template drops thinking; a copy of the prompt would take the other conversation's
    // slot
    for (const prompt of [one, other]) {
      const before = sampler.promptTokens.reused;
      const request = { prompt: [...prompt, 60, 61], maxNewTokens: 5, seed: 3 };
      const [response] = await sampler.submit(request).responses;
      expect(sampler.promptTokens.reused - before).toBe(20);
      expect(response?.ids).toEqual((await alone(model, request)).ids);
    }
  });

  it('is off unless it is asked for', async () => {
    using model = await open();
    using sampler = new Sampler(model);
    for (let i = 0; i < 2; i++) await sampler.generate([{ prompt: [5, 9, 3], maxNewTokens: 4 }]);
    expect(sampler.promptTokens).toEqual({ computed: 6, reused: 0 });
  });
});

describe('adapters', () => {
  it('writes each response with the adapter that it asks for, in one batch', async () => {
    using model = await open();
    for (const name of ['one', 'two']) {
      addLora(model, { r: 2, alpha: 4, name });
      noGrad(() => {
        for (const [, weight] of model.adapters?.parameters() ?? []) weight.normal_(0, 0.3);
      });
    }
    const request = { prompt: [5, 9, 3], maxNewTokens: 12, seed: 4 };
    const expected: SampledResponse[] = [];
    for (const adapter of ['one', 'two', null]) {
      model.adapters?.activate(adapter);
      expected.push(await alone(model, request));
    }
    setAdapter(model, 'two');
    using sampler = createSampler(model, { slots: 4, maxLength: 32, reusePrefixes: true });
    const submissions = ['one', 'two', null, undefined].map((adapter) =>
      sampler.submit(adapter === undefined ? request : { ...request, adapter }),
    );
    const responses = (await Promise.all(submissions.map((submission) => submission.responses))).flat();
    expect(responses).toEqual([...expected, expected[1]]);
    expect(new Set(expected.map(({ ids }) => ids.join())).size).toBe(3);
    expect(model.adapters?.active?.name).toBe('two');
    expect(() => sampler.submit({ ...request, adapter: 'three' })).toThrow(/no adapter "three"/);
  });
});

describe('what a request may ask for', () => {
  it('reports the likeliest tokens, of which the greedy one is the first', async () => {
    using model = await open();
    const response = await alone(model, { prompt: [5, 9], maxNewTokens: 5, temperature: 0, topLogprobs: 3 });
    for (const [i, top] of (response.topLogprobs ?? []).entries()) {
      expect(top).toHaveLength(3);
      expect(top[0]?.id).toBe(response.ids[i]);
      expect(top[0]?.logprob).toBeCloseTo(response.logprobs[i] as number, 5);
      expect((top[0]?.logprob as number) >= (top[1]?.logprob as number)).toBe(true);
    }
    expect(response.topLogprobs).toHaveLength(5);
    const drawn = await alone(model, { prompt: [5, 9], maxNewTokens: 1, temperature: 0.5, topLogprobs: 1000 });
    const mass = drawn.topLogprobs?.[0]?.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0);
    expect(mass).toBeCloseTo(1, 4);
  });

  it('draws only what is allowed, with log-probs over that', async () => {
    using model = await open();
    const even = Array.from({ length: 20 }, (_, i) => 2 * i);
    const allow = (ids: readonly number[]) => (ids.length === 3 ? [7] : even);
    const response = await alone(model, { prompt: [5, 9], maxNewTokens: 6, allow, topLogprobs: 30 });
    expect(response.ids.map((id, i) => (i === 3 ? id : id % 2))).toEqual([0, 0, 0, 7, 0, 0]);
    expect(response.logprobs[3]).toBeCloseTo(0, 6);
  });

  it('says what share of the mass truncation cut, and log-probs without it', async () => {
    using model = await open();
    const request = { prompt: [5, 9], maxNewTokens: 8, seed: 2, truncatedLogprobs: true };
    const whole = await alone(model, request);
    expect(whole.cutMass).toBeUndefined();
    expect(whole.truncatedLogprobs).toEqual(whole.logprobs);
    for (const rule of [{ topK: 4 }, { topP: 0.6 }, { minP: 0.3 }]) {
      const { ids, logprobs, cutMass, truncatedLogprobs, topLogprobs } = await alone(model, {
        ...request,
        ...rule,
        topLogprobs: 1000,
      });
      for (const i of ids.keys()) {
        const all = (topLogprobs?.[i] ?? []).map(({ logprob }) => Math.exp(logprob));
        let kept: number;
        if (rule.topK !== undefined) kept = all.slice(0, 4).reduce((a, b) => a + b, 0);
        else if (rule.minP !== undefined)
          kept = all.filter((p) => p >= 0.3 * (all[0] as number)).reduce((a, b) => a + b);
        else {
          kept = 0;
          for (const p of all) if (kept < 0.6) kept += p;
        }
        expect(cutMass?.[i]).toBeCloseTo(1 - kept, 4);
        expect(truncatedLogprobs?.[i]).toBeCloseTo((logprobs[i] as number) - Math.log(kept), 4);
      }
    }
  });
});

describe('FairQueue', () => {
  it('gives clients in turn, each in the order of its own, and drops what is not wanted', () => {
    const queue = new FairQueue<string>();
    for (const item of ['a1', 'a2', 'a3', 'b1', 'c1', 'c2']) queue.push(item[0], item);
    queue.keepOnly((item) => item !== 'a2' && item !== 'b1');
    const order: (string | undefined)[] = [];
    while (queue.first !== undefined) order.push(queue.shift());
    expect(order).toEqual(['a1', 'c1', 'a3', 'c2']);
    expect(queue.shift()).toBeUndefined();
  });
});
