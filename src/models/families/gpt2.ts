/** GPT-2 (Radford et al. 2019): learned positions, one fused projection, matrices kept as [in, out]. */
import type { Family } from '../spec.ts';
import { headSize, unlimited } from './heads.ts';

export const gpt2: Family = {
  modelType: 'gpt2',
  architectures: {
    causal: 'GPT2LMHeadModel',
    sequence: 'GPT2ForSequenceClassification',
    token: 'GPT2ForTokenClassification',
  },
  aliases: {
    n_embd: ['hidden_size'],
    n_positions: ['max_position_embeddings'],
    n_head: ['num_attention_heads'],
    n_layer: ['num_hidden_layers'],
  },
  spec(config) {
    const hiddenSize = config.size('n_embd', 768);
    const layers = config.size('n_layer', 12);
    const heads = config.size('n_head', 12);
    const headDim = headSize(config, heads, hiddenSize);
    const maxPositions = config.size('n_positions', 1024);
    // Upcasting and reordering change the rounding of half precision only: scores are kept in float32 here anyway.
    config.bool('reorder_and_upcast_attn', false);
    return {
      family: 'gpt2',
      vocabSize: config.size('vocab_size', 50257),
      hiddenSize,
      layers,
      maxPositions,
      positions: { kind: 'learned', count: maxPositions },
      norm: { kind: 'layer', eps: config.number('layer_norm_epsilon', 1e-5), bias: true },
      embeddingNorm: false,
      normPlace: 'pre',
      parallel: false,
      attention: {
        heads,
        kvHeads: heads,
        headDim,
        scale: config.bool('scale_attn_weights', true) ? headDim ** -0.5 : 1,
        scaleByLayer: config.bool('scale_attn_by_inverse_layer_idx', false),
        layout: 'blocked',
        qkvBias: true,
        outBias: true,
        windows: unlimited(layers),
        dropout: config.number('attn_pdrop', 0.1),
      },
      mlp: {
        size: config.sizeOrNull('n_inner', null) ?? 4 * hiddenSize,
        gated: false,
        activation: config.activation('activation_function', 'gelu_new'),
        bias: true,
      },
      tied: config.bool('tie_word_embeddings', true),
      headBias: false,
      dropout: { embedding: config.number('embd_pdrop', 0.1), residual: config.number('resid_pdrop', 0.1) },
      initializerRange: config.number('initializer_range', 0.02),
    };
  },
  names: {
    basePrefix: 'transformer',
    embedding: 'transformer.wte',
    positions: 'transformer.wpe',
    layer: (index) => `transformer.h.${index}`,
    attentionNorm: 'ln_1',
    mlpNorm: 'ln_2',
    qkv: ['attn.c_attn'],
    out: 'attn.c_proj',
    up: ['mlp.c_fc'],
    down: 'mlp.c_proj',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    transposed: true,
    ignored: /\.attn\.(masked_)?bias$/,
  },
  loraTargets: ['c_attn'],
};
