/** Several steps of a plan in one call, by any number of threads, against one step at a time by one thread. */
import { afterEach, describe, expect, it } from 'vitest';
import { quantTypes } from '../../nn/index.ts';
import { scope, setThreads, tensor, threads } from '../../tensor/index.ts';
import { initModel, type Model, type SampledResponse, Sampler } from '../index.ts';
import { KvCache } from './cache/cache.ts';
import { DecodePlan, type StepLimits } from './plan.ts';
import { type Drawn, ruleTensors } from './sampling.ts';
import { filled, SHAPE } from './small-model.test-support.ts';

/** A vocabulary large enough to occupy several threads. */
const wide = { ...SHAPE, vocab_size: 6000, model_type: 'qwen3' };
const plain = { temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 };
const rules = [{ ...plain, temperature: 0 }, plain, { ...plain, topP: 0.8 }];
const forever = 1e9;

const ownThreads = threads();
afterEach(() => setThreads(ownThreads));

/** Consecutive calls of a new plan, each from where the last one ended. */
function calls(model: Model, rows: number, limits: readonly StepLimits[]): Drawn[] {
  const { spec, dtype } = model.decoder;
  const cache = new KvCache(spec, { slots: 3, length: 64, blocks: 3 }, { dtype, device: 'cpu' });
  for (let slot = 0; slot < 3; slot++) cache.setTable(slot, [2 - slot]);
  cache.upload();
  const plan = DecodePlan.of(model.decoder, cache) as DecodePlan;
  let [ids, position] = [[7, 77, 777].slice(0, rows), 0];
  try {
    return scope(() => {
      const slots = tensor(BigInt64Array.from([1n, 0n, 2n].slice(0, rows)));
      const rule = ruleTensors(rules.slice(0, rows), [3, 4, 5].slice(0, rows), 'cpu');
      return limits.map((limit) => {
        const positions = ids.map(() => position);
        const drawn = plan.stepLists(ids, positions, slots, rule, limit);
        ids = drawn.ids.slice(-rows);
        position += drawn.ids.length / rows;
        return drawn;
      });
    });
  } finally {
    plan.dispose();
    cache.dispose();
  }
}

const joined = (drawn: readonly Drawn[]) => ({
  ids: drawn.flatMap(({ ids }) => ids),
  logprobs: drawn.flatMap(({ logprobs }) => logprobs),
  kept: drawn.flatMap(({ kept }) => kept),
});

describe('steps in one call', () => {
  it.each(['float32', 'bfloat16', ...quantTypes] as const)(
    'are the steps one by one, to the bit, by any threads: %s',
    (kind) => {
      using model =
        kind === 'float32' || kind === 'bfloat16' ? filled(wide, kind) : initModel(wide, { seed: 1, quantType: kind });
      for (const rows of [1, 3]) {
        setThreads(1);
        const single = Array.from({ length: 6 }, () => ({ steps: 1, stops: [], milliseconds: forever }));
        const expected = joined(calls(model, rows, single));
        expect(expected.ids).toHaveLength(6 * rows);
        for (const count of [1, 3, 16]) {
          setThreads(count);
          expect(joined(calls(model, rows, single))).toEqual(expected);
          expect(calls(model, rows, [{ steps: 6, stops: [], milliseconds: forever }])).toEqual([expected]);
        }
      }
    },
  );

  it('end after a token that is among the stops, and where no time is left', () => {
    using model = filled(wide);
    const [{ ids }] = calls(model, 3, [{ steps: 5, stops: [], milliseconds: forever }]) as [Drawn];
    const stop = ids[4] as number; // of the second row
    const first = Math.floor(ids.indexOf(stop) / 3) + 1;
    const stopped = calls(model, 3, [{ steps: 5, stops: [5999, stop], milliseconds: forever }]);
    expect(stopped.map((drawn) => drawn.ids)).toEqual([ids.slice(0, 3 * first)]);
    const late = calls(model, 3, [{ steps: 5, stops: [], milliseconds: 0 }]);
    expect(late.map((drawn) => drawn.ids)).toEqual([ids.slice(0, 3)]);
  });

  it('fail as one step does', () => {
    using model = filled(wide);
    setThreads(4);
    const limit = { steps: 70, stops: [], milliseconds: forever }; // the slot has 64 places
    expect(() => calls(model, 1, [limit])).toThrow(/outside the cache/);
    expect(calls(model, 1, [{ ...limit, steps: 64 }])[0]?.ids).toHaveLength(64);
  });

  it('give responses that end where they should', async () => {
    using model = filled(wide);
    using sampler = new Sampler(model, { slots: 2 });
    const request = { prompt: [1, 2, 3], maxNewTokens: 100, temperature: 1, seed: 1 };
    const free = (await sampler.generate([request])).flat()[0] as SampledResponse;
    expect(free.ids).toHaveLength(100);
    const stop = free.ids[70] as number;
    const stopIds = [stop];
    const responses = await sampler.generate(
      [5, 64, 100].map((maxNewTokens) => ({ ...request, maxNewTokens, stopIds })),
    );
    for (const [i, length] of [5, 64, free.ids.indexOf(stop) + 1].entries()) {
      const expected = free.ids.slice(0, Math.min(length, free.ids.indexOf(stop) + 1));
      expect(responses[i]?.[0]?.ids).toEqual(expected);
    }
  });
});
