/**
 * Falcon (Almazrouei et al. 2023): 7B (one key-value head, attention beside the MLP under one norm), 40B and 180B (the new
 * decoder: grouped heads, a norm each), RW-1B and 7B (ALiBi, one after the other, biases).
 */
import type { ConfigReader, DecoderSpec, Family } from '../spec.ts';
import { groupedHeads, headSize, unlimited } from './heads.ts';

export const falcon: Family = {
  modelType: 'falcon',
  architectures: {
    causal: 'FalconForCausalLM',
    sequence: 'FalconForSequenceClassification',
    token: 'FalconForTokenClassification',
  },
  aliases: {
    hidden_size: ['n_embed'],
    num_hidden_layers: ['n_layer'],
    num_attention_heads: ['n_head'],
    num_kv_heads: ['n_head_kv'],
  },
  spec(config) {
    const hiddenSize = config.size('hidden_size', 4544);
    const layers = config.size('num_hidden_layers', 32);
    const heads = config.size('num_attention_heads', 71);
    const headDim = headSize(config, heads, hiddenSize);
    const maxPositions = config.size('max_position_embeddings', 2048);
    const parallel = parallelKind(config);
    const alibi = config.bool('alibi', false);
    const bias = config.bool('bias', false);
    const attentionDropout = config.number('attention_dropout', 0);
    config.only('apply_residual_connection_post_layernorm', [false, null], 'Falcon adds to the input before its norm');
    const rope = config.rope({ headDim, maxPositions });
    return {
      family: 'falcon',
      vocabSize: config.size('vocab_size', 65024),
      hiddenSize,
      layers,
      maxPositions,
      positions: alibi
        ? { kind: 'alibi', scale: headDim ** -0.5, bfloat16: true }
        : { kind: 'rope', interleaved: false, ...rope },
      norm: { kind: 'layer', eps: config.number('layer_norm_epsilon', 1e-5), bias: true },
      embeddingNorm: false,
      normPlace: 'pre',
      parallel,
      attention: {
        heads,
        kvHeads: kvHeads(config, heads),
        headDim,
        scale: headDim ** -0.5,
        scaleByLayer: false,
        layout: 'grouped',
        qkvBias: bias,
        outBias: bias,
        windows: unlimited(layers),
        // With rope transformers drops no attention weights, with ALiBi it does.
        dropout: alibi ? attentionDropout : 0,
      },
      mlp: {
        size: config.sizeOrNull('ffn_hidden_size', null) ?? 4 * hiddenSize,
        gated: false,
        activation: config.activation('activation', 'gelu'),
        bias,
      },
      tied: config.bool('tie_word_embeddings', true),
      headBias: false,
      dropout: {
        embedding: 0,
        residual: config.number('hidden_dropout', 0),
        ...(parallel ? {} : { attentionOutput: attentionDropout }),
      },
      initializerRange: config.number('initializer_range', 0.02),
    };
  },
  names: (spec) => ({
    basePrefix: 'transformer',
    embedding: 'transformer.word_embeddings',
    layer: (index) => `transformer.h.${index}`,
    attentionNorm: spec.parallel === 'two-norms' ? 'ln_attn' : 'input_layernorm',
    ...(spec.parallel === 'two-norms' ? { mlpNorm: 'ln_mlp' } : {}),
    ...(spec.parallel === false ? { mlpNorm: 'post_attention_layernorm' } : {}),
    qkv: ['self_attention.query_key_value'],
    out: 'self_attention.dense',
    up: ['mlp.dense_h_to_4h'],
    down: 'mlp.dense_4h_to_h',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    transposed: false,
    ignored: /\.self_attention\.(rotary_emb|maybe_rotary)\.inv_freq$/,
  }),
  loraTargets: ['query_key_value'],
};

/** The new decoder is always parallel, with a norm each unless told one; the old one has one norm when it is parallel. */
function parallelKind(config: ConfigReader): DecoderSpec['parallel'] {
  const norms = config.sizeOrNull('num_ln_in_parallel_attn', null);
  const parallel = config.bool('parallel_attn', true);
  if (!config.bool('new_decoder_architecture', false)) {
    if (!parallel) return false;
    if (norms === 2) config.fail('num_ln_in_parallel_attn', 'is 2, which goes with new_decoder_architecture only');
    return 'one-norm';
  }
  if (!parallel) config.fail('parallel_attn', 'is false, but new_decoder_architecture is always parallel');
  if (norms !== null && norms > 2) config.fail('num_ln_in_parallel_attn', `is ${norms}: must be 1 or 2`);
  return norms === 1 ? 'one-norm' : 'two-norms';
}

function kvHeads(config: ConfigReader, heads: number): number {
  const given = config.sizeOrNull('num_kv_heads', null) ?? heads;
  const multiQuery = config.bool('multi_query', true);
  if (config.bool('new_decoder_architecture', false)) return groupedHeads(config, 'num_kv_heads', heads, given);
  if (multiQuery) return 1;
  if (given !== heads)
    config.fail('num_kv_heads', `is ${given}: without multi_query every head has its own (${heads})`);
  return heads;
}
