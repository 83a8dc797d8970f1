import { expect, it } from 'vitest';
import { initModel, trainingMemory } from '../models/index.ts';
import { rankMemory } from './rank-memory.ts';

/** Qwen3-8B's shape, as in benchmarks/dist-memory.ts. */
const shape = (blocks: number) => ({
  ...{ model_type: 'qwen3', vocab_size: 151_936, hidden_size: 4096, intermediate_size: 12_288 },
  ...{ num_hidden_layers: blocks, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128 },
  ...{
    max_position_embeddings: 4096,
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    hidden_act: 'silu',
    tie_word_embeddings: false,
  },
});
const lora = { r: 16, alpha: 32, dropout: 0.05 };

// Peak GPU memory measured on each rank, in GiB (docs/distributed.md). The plan here excludes activations.
it.each([
  ['none', 36, 1, null, 125.9],
  ['optimizer', 8, 2, null, 30.7],
  ['full', 8, 2, null, 30.4],
  ['none', 36, 1, lora, 16.1],
  ['full', 36, 2, lora, 11.4],
] as const)('--shard %s, %i blocks, %i ranks: near what was measured', (shard, blocks, ranks, adapters, measured) => {
  using model = initModel(shape(blocks), { device: 'meta', dtype: 'bfloat16' });
  const options = { dtype: 'bfloat16' as const, lora: adapters, tokens: 0, device: 'cuda:0' as const };
  const alone = trainingMemory(model, options);
  const { weightBytes, optimizerBytes } = rankMemory(model, alone, { ...options, shard, ranks });
  const planned = (weightBytes + optimizerBytes) / 2 ** 30;
  expect(planned).toBeGreaterThan(0.93 * measured);
  expect(planned).toBeLessThan(1.01 * measured);
});

it('ranks that share more hold less, in f32 and in bf16', () => {
  for (const dtype of ['float32', 'bfloat16'] as const) {
    using model = initModel(shape(8), { device: 'meta', dtype });
    const alone = trainingMemory(model, { dtype, tokens: 64, device: 'cpu' });
    const total = (shard: 'none' | 'optimizer' | 'full', ranks: number) =>
      rankMemory(model, alone, { dtype, lora: null, shard, ranks }).totalBytes;
    expect(total('full', 1)).toBe(alone.totalBytes);
    expect(total('none', 8)).toBeGreaterThanOrEqual(alone.totalBytes);
    expect(total('optimizer', 8)).toBeLessThan(total('none', 8));
    expect(total('full', 8)).toBeLessThan(total('optimizer', 8));
    expect(total('full', 64)).toBeLessThan(total('full', 8));
  }
});
