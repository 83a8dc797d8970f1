/** BLOOM (BigScience 2022): ALiBi instead of positions, a norm after the embedding. */
import type { Family } from '../spec.ts';
import { headSize, unlimited } from './heads.ts';

export const bloom: Family = {
  modelType: 'bloom',
  architectures: {
    causal: 'BloomForCausalLM',
    sequence: 'BloomForSequenceClassification',
    token: 'BloomForTokenClassification',
  },
  aliases: { hidden_size: ['n_embed'], n_layer: ['num_hidden_layers'], n_head: ['num_attention_heads'] },
  spec(config) {
    const hiddenSize = config.size('hidden_size', 64);
    const layers = config.size('n_layer', 2);
    const heads = config.size('n_head', 8);
    const headDim = headSize(config, heads, hiddenSize);
    // Slices of tensor parallelism only change the order of a sum, but their slow path leaves the biases out.
    if (config.bool('slow_but_exact', false) && config.size('pretraining_tp', 1) > 1) {
      config.fail('slow_but_exact', 'is true with pretraining_tp above 1, which is not supported: set it to false');
    }
    return {
      family: 'bloom',
      vocabSize: config.size('vocab_size', 250880),
      hiddenSize,
      layers,
      // ALiBi knows no limit; this is the length that the published models were trained with.
      maxPositions: config.size('seq_length', 2048),
      positions: { kind: 'alibi', scale: 1, bfloat16: false },
      norm: { kind: 'layer', eps: config.number('layer_norm_epsilon', 1e-5), bias: true },
      embeddingNorm: true,
      normPlace: config.bool('apply_residual_connection_post_layernorm', false) ? 'pre-residual' : 'pre',
      parallel: false,
      attention: {
        heads,
        kvHeads: heads,
        headDim,
        scale: headDim ** -0.5,
        scaleByLayer: false,
        layout: 'grouped',
        qkvBias: true,
        outBias: true,
        windows: unlimited(layers),
        dropout: config.number('attention_dropout', 0),
      },
      mlp: { size: 4 * hiddenSize, gated: false, activation: 'gelu_tanh', bias: true },
      tied: config.bool('tie_word_embeddings', true),
      headBias: false,
      dropout: { embedding: 0, residual: config.number('hidden_dropout', 0) },
      initializerRange: config.number('initializer_range', 0.02),
    };
  },
  names: {
    basePrefix: 'transformer',
    embedding: 'transformer.word_embeddings',
    embeddingNorm: 'transformer.word_embeddings_layernorm',
    layer: (index) => `transformer.h.${index}`,
    attentionNorm: 'input_layernorm',
    mlpNorm: 'post_attention_layernorm',
    qkv: ['self_attention.query_key_value'],
    out: 'self_attention.dense',
    up: ['mlp.dense_h_to_4h'],
    down: 'mlp.dense_4h_to_h',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    transposed: false,
  },
  loraTargets: ['query_key_value'],
};
