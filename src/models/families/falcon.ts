/**
 * Falcon (Almazrouei et al. 2023): 7B (one key-value head, attention and MLP in parallel under one norm), 40B and 180B
 * (the new decoder: grouped heads, a norm each), RW-1B and RW-7B (ALiBi, attention then MLP, biases).
 */

import { classic, megatronNames } from './classic.ts';
import { groupedHeads, headSize } from './heads.ts';
import type { ConfigReader, DecoderSpec, Family } from './spec.ts';

export const falcon: Family = {
  modelType: 'falcon',
  architectures: {
    causal: 'FalconForCausalLM',
    sequence: 'FalconForSequenceClassification',
    token: 'FalconForTokenClassification',
  },
  tokenHead: 'classifier',
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
    const spec = classic(config, {
      family: 'falcon',
      vocabSize: config.size('vocab_size', 65024),
      hiddenSize,
      layers,
      heads,
      headDim,
      maxPositions,
      positions: alibi
        ? { kind: 'alibi', scale: headDim ** -0.5, bfloat16: true }
        : { kind: 'rope', interleaved: false, ...rope },
      eps: config.number('layer_norm_epsilon', 1e-5),
      mlp: {
        size: config.sizeOrNull('ffn_hidden_size', null) ?? 4 * hiddenSize,
        activation: config.activation('activation', 'gelu'),
      },
      tied: config.bool('tie_word_embeddings', true),
    });
    return {
      ...spec,
      parallel,
      attention: {
        ...spec.attention,
        kvHeads: kvHeads(config, heads),
        layout: 'grouped',
        qkvBias: bias,
        outBias: bias,
        // transformers applies attention dropout with ALiBi only, not with rope.
        dropout: alibi ? attentionDropout : 0,
      },
      mlp: { ...spec.mlp, bias },
      dropout: {
        embedding: 0,
        residual: config.number('hidden_dropout', 0),
        ...(parallel ? {} : { attentionOutput: attentionDropout }),
      },
    };
  },
  names: ({ parallel }) => ({
    ...megatronNames,
    ...(parallel === 'two-norms' ? { attentionNorm: 'ln_attn', mlpNorm: 'ln_mlp' } : {}),
    ...(parallel === false ? { mlpNorm: 'post_attention_layernorm' } : {}),
    ignored: /\.self_attention\.(rotary_emb|maybe_rotary)\.inv_freq$/,
  }),
  loraTargets: ['query_key_value'],
};

/**
 * The new decoder is always parallel, with two norms unless the config says one. The old one, if parallel, has one
 * norm.
 */
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
