import { describe, expect, it } from 'vitest';
import { noGrad, randn, scope, seed } from '../../tensor/index.ts';
import { addLora, initModel, packSequences } from '../index.ts';

const llama = {
  model_type: 'llama',
  vocab_size: 40,
  hidden_size: 24,
  intermediate_size: 36,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 32,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
};
const gpt2 = { model_type: 'gpt2', vocab_size: 40, n_embd: 24, n_layer: 2, n_head: 4, n_positions: 32 };
const olmo2 = { ...llama, model_type: 'olmo2' };

describe('a block in its input’s place', () => {
  it.each([
    ['llama', llama, false, undefined],
    ['llama with adapters', llama, true, undefined],
    ['llama in 4 bits, with adapters', llama, true, 'int4'],
    ['gpt2, with biases', gpt2, false, undefined],
    ['gpt2 in 8 bits', gpt2, false, 'int8'],
    ['olmo2, whose norms come after: a fresh result', olmo2, false, undefined],
  ] as const)('is the same block: %s', (_, config, lora, quantType) => {
    using model = initModel(config, { seed: 1, quantType });
    if (lora) addLora(model, { r: 2, alpha: 4 });
    const { decoder } = model;
    decoder.train(false);
    seed(3);
    scope(() =>
      noGrad(() => {
        const batch = packSequences([
          [1, 2, 3, 4],
          [5, 6, 7],
        ]);
        const pass = decoder.pass(batch);
        const x = randn([7, 24]);
        const expected = decoder.blocks(x.clone(), pass);
        const own = x.clone();
        const found = decoder.blocks(own, { ...pass, inPlace: true });
        expect(found.sub(expected).abs().max().item()).toBeLessThan(1e-6);
        expect(own.sub(x).abs().max().item() > 0).toBe(config !== olmo2);
      }),
    );
  });
});
