/**
 * Steps of many rows over a cache in 8 bits: blocks that go through rows give the bits of those to which rows are dealt, and to rounding
 * those of rows of more than 1,024 keys, which are dealt in chunks where a slot has room for more than 2,048.
 */
import { expect, it } from 'vitest';
import { type CacheDtype, KvCache } from '../../src/models/generate/cache/cache.ts';
import { prefill } from '../../src/models/generate/decoding.ts';
import { Stepper } from '../../src/models/generate/stepper.ts';
import { initModel, type Model } from '../../src/models/index.ts';
import { integers, noGrad, scope, type Tensor } from '../../src/tensor/index.ts';
import { device, onlyOnCuda } from './device.ts';

const modelOf = (heads: number): Model =>
  initModel(
    {
      ...{ model_type: 'qwen3', vocab_size: 120, hidden_size: 128, intermediate_size: 96, num_hidden_layers: 2 },
      ...{ max_position_embeddings: 4096, rms_norm_eps: 1e-6, tie_word_embeddings: true },
      ...{ head_dim: 128, num_attention_heads: heads, num_key_value_heads: 8 },
    },
    { seed: 2, device, dtype: 'bfloat16' },
  );

/**
 * The logits of two steps, of which the second finds what the first left, behind prompts of these lengths; a slot has room for so many blocks.
 * Idle rows are at position 0 of the spare slot.
 */
function stepLogits(
  { decoder }: Model,
  lengths: number[],
  room: number,
  { isIdle = () => false, cacheDtype = 'int8' }: { isIdle?: (row: number) => boolean; cacheDtype?: CacheDtype } = {},
): Float32Array[] {
  const own = lengths.map((length) => Math.ceil((length + 2) / 64));
  const blocks = own.reduce((sum, count) => sum + count, 0);
  const size = { slots: lengths.length, length: room * 64, blocks };
  const cache = new KvCache(decoder.spec, size, { dtype: 'bfloat16', device, cacheDtype });
  let used = 0;
  for (const [slot, count] of own.entries()) {
    const from = used;
    cache.setTable(
      slot,
      Array.from({ length: count }, (_, i) => from + ((i + slot) % count)),
    );
    used += count;
  }
  cache.upload();
  const items = lengths.map((length, slot) => ({
    slot,
    prompt: Array.from({ length }, (_, i) => (i * 7 + slot * 13) % 120),
  }));
  noGrad(() => {
    for (let at = 0; at < lengths.length; at += 16) scope(() => void prefill(decoder, cache, items.slice(at, at + 16)));
  });
  using stepper = new Stepper(decoder, cache);
  const put = (values: number[]) => integers(values, { device });
  const found = [0, 1].map((step) => {
    const logits: Tensor = noGrad(() =>
      stepper.logits({
        ids: put(lengths.map((_, i) => (i * 11 + step) % 120)),
        positions: put(lengths.map((length, i) => (isIdle(i) ? 0 : length + step))),
        slots: put(lengths.map((_, i) => (isIdle(i) ? lengths.length : i))),
      }),
    );
    return logits.to({ device: 'cpu', dtype: 'float32' }).data() as Float32Array;
  });
  cache.dispose();
  return found;
}

const cases = [
  { rows: 96, heads: 16, room: 7, lengthOf: () => 383 },
  { rows: 84, heads: 16, room: 16, lengthOf: (i: number) => 1 + ((i * 97) % 1020) },
  { rows: 200, heads: 16, room: 8, lengthOf: (i: number) => 1 + ((i * 61) % 500) },
  { rows: 264, heads: 16, room: 5, lengthOf: (i: number) => (i % 3 === 0 ? 1 : 2 + ((i * 97) % 300)) },
  { rows: 130, heads: 32, room: 8, lengthOf: (i: number) => 1 + ((i * 61) % 500) },
];
const long = [
  { rows: 1, lengthOf: () => 1500 },
  { rows: 6, lengthOf: (i: number) => 1 + ((i * 397) % 2040) },
  { rows: 14, lengthOf: (i: number) => 1 + ((i * 397) % 2040) },
  { rows: 20, lengthOf: (i: number) => 1 + ((i * 397) % 2040) },
  { rows: 64, lengthOf: (i: number) => 500 + ((i * 397) % 1540) },
  { rows: 100, lengthOf: (i: number) => (i % 9 === 0 ? 2045 : 1 + ((i * 397) % 900)) },
  { rows: 270, lengthOf: (i: number) => (i % 30 === 0 ? 2045 : 1 + ((i * 397) % 300)) },
];
onlyOnCuda('a step of many rows over 8 bits', () => {
  it.each(cases)(
    'has the bits of one whose keys are dealt: $rows rows, $heads heads',
    ({ rows, heads, room, lengthOf }) =>
      scope(() => {
        using model = modelOf(heads);
        const lengths = Array.from({ length: rows }, (_, i) => lengthOf(i));
        const [one, two] = stepLogits(model, lengths, room);
        const dealt = stepLogits(model, lengths, 40);
        expect(one?.every(Number.isFinite)).toBe(true);
        expect(one).toEqual(dealt[0]);
        expect(two).toEqual(dealt[1]);
      }),
  );

  it.each(['model', 'int8'] as const)("has a row's bits whatever rows are idle, with a cache in %s", (cacheDtype) =>
    scope(() => {
      using model = modelOf(16);
      for (const rows of [2, 6, 16, 20, 64, 100, 270]) {
        const lengths = Array.from({ length: rows }, (_, i) => 1 + ((i * 397) % 900));
        const expected = stepLogits(model, lengths, 16, { cacheDtype });
        for (const isIdle of [(i: number) => i % 3 === 1 || i >= 0.9 * rows, (i: number) => i < 2, () => true]) {
          const found = stepLogits(model, lengths, 16, { cacheDtype, isIdle });
          for (const [step, logits] of found.entries())
            for (let row = 0; row < rows; row++) {
              if (isIdle(row)) continue;
              const of = (all?: Float32Array) => all?.subarray(row * 120, (row + 1) * 120);
              expect(of(logits), `row ${row} of ${rows}`).toEqual(of(expected[step]));
            }
        }
      }
    }),
  );

  it.each(long)('is right where rows have up to 2,048 keys: $rows rows', ({ rows, lengthOf }) =>
    scope(() => {
      using model = modelOf(16);
      const lengths = Array.from({ length: rows }, (_, i) => lengthOf(i));
      const whole = stepLogits(model, lengths, 32);
      expect(stepLogits(model, lengths, 32)).toEqual(whole);
      const dealt = stepLogits(model, lengths, 40);
      for (const [step, logits] of whole.entries()) {
        const other = dealt[step] as Float32Array;
        for (let row = 0; row < rows; row++) {
          const own = logits.subarray(row * 120, (row + 1) * 120);
          const squares = (of: (i: number) => number) => own.reduce((sum, _, i) => sum + of(i) ** 2, 0);
          const apart = squares((i) => (own[i] as number) - (other[row * 120 + i] as number));
          expect(Math.sqrt(apart / squares((i) => own[i] as number)), `row ${row}`).toBeLessThan(0.02);
        }
      }
    }),
  );
});
