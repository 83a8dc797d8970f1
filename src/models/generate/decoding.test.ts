/** Reads the remaining tokens of sequences into the cache, in passes of bounded size. */
import { expect, it } from 'vitest';
import { liveTensors, noGrad, scope, seed } from '../../tensor/index.ts';
import { BLOCK, KvCache } from './cache/cache.ts';
import { continuePrompts, fillSlots } from './decoding.ts';
import { filled, SHAPE } from './small-model.test-support.ts';

it('reads tokens in parts as it reads them at once', () => {
  seed(2);
  using model = filled({ ...SHAPE, model_type: 'qwen3', max_position_embeddings: 256 });
  const { decoder } = model;
  const items = [90, 3, 70].map((length, slot) => ({
    prompt: Array.from({ length }, (_, i) => 3 + ((i * (slot + 3)) % 30)),
    slot,
    from: 0,
  }));
  const read = (body: (cache: KvCache) => void) => {
    const cache = new KvCache(decoder.spec, { slots: 3, length: 2 * BLOCK, blocks: 6 }, decoder);
    for (const { slot } of items) cache.setTable(slot, [5 - slot, slot]);
    cache.upload();
    const before = liveTensors();
    noGrad(() => scope(() => body(cache)));
    expect(liveTensors()).toBeLessThanOrEqual(before + 2); // the rope's tables, the first time
    const numbers = [...cache.keys, ...cache.values].flatMap((each) => each.numbers());
    cache.dispose();
    return numbers;
  };
  const whole = read((cache) => void continuePrompts(decoder, cache, items));
  for (const most of [1, 7, 1000]) {
    const parts = read((cache) => fillSlots(decoder, cache, items, most));
    expect(Math.max(...parts.map((value, i) => Math.abs(value - (whole[i] as number))))).toBeLessThan(1e-4);
  }
});
