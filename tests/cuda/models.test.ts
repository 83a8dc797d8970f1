/** Small models of every family: logits on the device, and the sampler's tokens and log-probs. */

import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  loadModel,
  packSequences,
  type QuantType,
  quantTypes,
  type SampledResponse,
  Sampler,
  scoredTokens,
  tokenLogprobs,
} from '../../src/models/index.ts';
import { noGrad, openSafetensors, scope } from '../../src/tensor/index.ts';
import { device, gap, modelFixtures, precisions } from './device.ts';

describe.each(modelFixtures())(`%s on ${device}`, (name, path) => {
  function reference() {
    using file = openSafetensors(join(path, 'reference.safetensors'));
    return {
      ids: file.tensor('input_ids').tolist() as number[][],
      logits: file.tensor('logits').flatten(0, 1),
    };
  }

  it.each(precisions)('logits in %s', async (dtype, bound) => {
    const { ids, logits } = reference();
    using model = await loadModel(path, { device, dtype });
    scope(() => {
      const found = noGrad(() => model.decoder.logits(model.decoder.forward(packSequences(ids, device))));
      expect(gap(found, logits)).toBeLessThanOrEqual(1.5 * bound + 5e-5);
    });
    logits.dispose();
  });

  it.each(quantTypes)('logits of %s weights', async (quantType) => {
    const { ids } = reference();
    const logitsOn = async (place: string) => {
      using model = await loadModel(path, { device: place, dtype: 'float32', quantType });
      return noGrad(() => model.decoder.logits(model.decoder.forward(packSequences(ids, place))));
    };
    expect(gap(await logitsOn(device), await logitsOn('cpu'))).toBeLessThanOrEqual(2e-4);
  });

  it.each([undefined, 'int4'] as (QuantType | undefined)[])(
    'greedy tokens are the CPU’s, and log-probs the trainer’s (weights: %s)',
    async (quantType) => {
      const prompt = (reference().ids[0] as number[]).slice(0, 5);
      const greedy: number[][] = [];
      for (const place of new Set(['cpu', device])) {
        using model = await loadModel(path, { device: place, dtype: 'float32', quantType });
        using sampler = new Sampler(model);
        const request = { prompt, maxNewTokens: 12 };
        const [[best], [drawn]] = (await sampler.generate([
          { ...request, temperature: 0 },
          { ...request, temperature: 0.8, seed: 3 },
        ])) as [[SampledResponse], [SampledResponse]];
        greedy.push(best.ids);
        // Dynamic rope turns tokens by the length at which they were written: no forward over the whole repeats that.
        if (name === 'llama-dynamic') continue;
        const scored = scope(() =>
          noGrad(() => {
            const ids = [...prompt, ...drawn.ids];
            const batch = packSequences([ids], place);
            const responses = scoredTokens(
              batch.starts,
              ids.map((_, i) => (i >= prompt.length ? 1 : 0)),
            );
            return tokenLogprobs(model.decoder, model.decoder.forward(batch), batch, responses, 0.8).logp.numbers();
          }),
        );
        scored.forEach((value, i) => {
          expect(Math.abs(value - (drawn.logprobs[i] as number))).toBeLessThanOrEqual(1e-4);
        });
      }
      expect(new Set(greedy.map((ids) => ids.join())).size).toBe(1);
    },
  );
});
