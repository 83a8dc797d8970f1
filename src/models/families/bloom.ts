/** BLOOM (BigScience 2022): ALiBi instead of positions, a norm after the embedding. */

import { classic, megatronNames } from './classic.ts';
import { headSize } from './heads.ts';
import type { Family } from './spec.ts';

export const bloom: Family = {
  modelType: 'bloom',
  architectures: {
    causal: 'BloomForCausalLM',
    sequence: 'BloomForSequenceClassification',
    token: 'BloomForTokenClassification',
  },
  tokenHead: 'classifier',
  aliases: { hidden_size: ['n_embed'], n_layer: ['num_hidden_layers'], n_head: ['num_attention_heads'] },
  spec(config) {
    const hiddenSize = config.size('hidden_size', 64);
    const layers = config.size('n_layer', 2);
    const heads = config.size('n_head', 8);
    const headDim = headSize(config, heads, hiddenSize);
    // Slicing for tensor parallelism only changes the order of a sum, but its slow path leaves the biases out.
    if (config.bool('slow_but_exact', false) && config.size('pretraining_tp', 1) > 1) {
      config.fail('slow_but_exact', 'is true with pretraining_tp above 1, which is not supported: set it to false');
    }
    const spec = classic(config, {
      family: 'bloom',
      vocabSize: config.size('vocab_size', 250880),
      hiddenSize,
      layers,
      heads,
      headDim,
      // ALiBi has no limit; this is the length that the published models were trained with.
      maxPositions: config.size('seq_length', 2048),
      positions: { kind: 'alibi', scale: 1, bfloat16: false },
      eps: config.number('layer_norm_epsilon', 1e-5),
      mlp: { size: 4 * hiddenSize, activation: 'gelu_tanh' },
      tied: config.bool('tie_word_embeddings', true),
    });
    return {
      ...spec,
      embeddingNorm: true,
      normPlace: config.bool('apply_residual_connection_post_layernorm', false) ? 'pre-residual' : 'pre',
      attention: { ...spec.attention, layout: 'grouped', dropout: config.number('attention_dropout', 0) },
      dropout: { embedding: 0, residual: config.number('hidden_dropout', 0) },
    };
  },
  names: {
    ...megatronNames,
    embeddingNorm: 'transformer.word_embeddings_layernorm',
    mlpNorm: 'post_attention_layernorm',
  },
  loraTargets: ['query_key_value'],
};
