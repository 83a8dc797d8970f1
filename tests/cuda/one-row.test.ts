/** A step of one row of a model of 0.6B's widths: attention and the output projection are one kernel (native/cuda/solo/). */
import { expect, it } from 'vitest';
import { KvCache } from '../../src/models/generate/cache/cache.ts';
import { prefill } from '../../src/models/generate/decoding.ts';
import { DecodePlan } from '../../src/models/generate/plan.ts';
import { initModel } from '../../src/models/index.ts';
import { integers, noGrad, scope, seed, type Tensor } from '../../src/tensor/index.ts';
import { gap, onlyOnCuda } from './device.ts';

const device = 'cuda:0';
const config = {
  ...{ model_type: 'qwen3', vocab_size: 256, hidden_size: 1024, intermediate_size: 3072, num_hidden_layers: 3 },
  ...{ num_attention_heads: 16, num_key_value_heads: 8, head_dim: 128, max_position_embeddings: 1024 },
  ...{ rms_norm_eps: 1e-6, tie_word_embeddings: false },
};
/** As 0.6B, with a sliding window, and with biases in the MLP. */
const configs = {
  qwen3: config,
  'a window of 100': { ...config, model_type: 'mistral', sliding_window: 100 },
  'a window of 5': { ...config, model_type: 'mistral', sliding_window: 5 },
  'biases of gates': { ...config, model_type: 'llama', mlp_bias: true },
};
/** Of prompts, the first of which has no tokens: its row is at position 0. */
const LENGTHS = [0, 1, 15, 16, 17, 127, 128, 129, 383, 700, 1023];
const BLOCKS = 16; // of a row: as many as the kernel takes

/** Steps behind prompts of these lengths, of rows `from` to `from + count`. */
function stepsOf(name: keyof typeof configs, cacheDtype: 'int8' | undefined) {
  const model = initModel(configs[name], { seed: 2, device, dtype: 'bfloat16' });
  noGrad(() => {
    seed(4);
    for (const [name, parameter] of model.decoder.parameters()) if (name.endsWith('bias')) parameter.normal_(0, 0.5);
  });
  const size = { slots: LENGTHS.length, length: BLOCKS * 64, blocks: LENGTHS.length * BLOCKS };
  const cache = new KvCache(model.decoder.spec, size, { dtype: 'bfloat16', device, ...(cacheDtype && { cacheDtype }) });
  for (let slot = 0; slot < LENGTHS.length; slot++)
    cache.setTable(
      slot,
      Array.from({ length: BLOCKS }, (_, i) => slot * BLOCKS + ((i * 5 + slot) % BLOCKS)),
    );
  cache.upload();
  const items = LENGTHS.map((length, slot) => ({
    slot,
    prompt: Array.from({ length }, (_, i) => (i * 7 + slot * 13) % 256),
  }));
  const read = items.filter(({ prompt }) => prompt.length > 0);
  noGrad(() => scope(() => void prefill(model.decoder, cache, read)));
  const plan = DecodePlan.of(model.decoder, cache) as DecodePlan;
  const logits = (from: number, count: number): Tensor => {
    const at = (value: (row: number) => number) =>
      integers(
        Array.from({ length: count }, (_, i) => value(from + i)),
        { device },
      );
    return noGrad(() =>
      plan.logits({
        ids: at((row) => (row * 31 + 5) % 256),
        positions: at((row) => LENGTHS[row] as number),
        slots: at((row) => row),
      }),
    );
  };
  const dispose = () => {
    plan.dispose();
    cache.dispose();
    model.dispose();
  };
  return { model, logits, dispose };
}

onlyOnCuda('a step of one row', () => {
  const names = Object.keys(configs) as (keyof typeof configs)[];
  const cases = names.flatMap((name) => ([undefined, 'int8'] as const).map((kind) => [name, kind] as const));
  it.each(cases)('says what the row says among others, and always the same: %s, cache %s', (name, kind) =>
    scope(() => {
      const { logits, dispose } = stepsOf(name, kind);
      const together = logits(0, LENGTHS.length);
      for (const [row, length] of LENGTHS.entries()) {
        const alone = logits(row, 1);
        expect(gap(alone, together.narrow(0, row, 1)), `${length} tokens`).toBeLessThanOrEqual(2e-2);
        for (let again = 0; again < 5; again++) expect(logits(row, 1).eq(alone).all().item()).toBe(1);
      }
      dispose();
    }),
  );

  it('is not a number where a sum is not finite, and in the next step it is again', () =>
    scope(() => {
      const { model, logits, dispose } = stepsOf('qwen3', undefined);
      const weight = [...model.decoder.parameters()].find(([name]) => name.endsWith('o_proj.weight'))?.[1] as Tensor;
      const [before, kept] = [logits(3, 1), weight.select(0, 7).clone()];
      noGrad(() => void weight.select(0, 7).fill_(Number.POSITIVE_INFINITY));
      expect(logits(3, 1).isfinite().any().item()).toBe(0);
      noGrad(() => void weight.select(0, 7).copy_(kept));
      expect(logits(3, 1).eq(before).all().item()).toBe(1);
      dispose();
    }));
});
