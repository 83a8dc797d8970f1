/** GPT-NeoX and Pythia (Black et al. 2022; Biderman et al. 2023): rope on a share of each head, parallel residual. */

import { classic } from './classic.ts';
import { headSize } from './heads.ts';
import type { Family } from './spec.ts';

export const gptNeox: Family = {
  modelType: 'gpt_neox',
  architectures: {
    causal: 'GPTNeoXForCausalLM',
    sequence: 'GPTNeoXForSequenceClassification',
    token: 'GPTNeoXForTokenClassification',
  },
  tokenHead: 'classifier',
  spec(config) {
    const hiddenSize = config.size('hidden_size', 6144);
    const layers = config.size('num_hidden_layers', 44);
    const heads = config.size('num_attention_heads', 64);
    const headDim = headSize(config, heads, hiddenSize);
    const maxPositions = config.size('max_position_embeddings', 2048);
    config.only(
      'head_dim',
      [headDim, null],
      `a head of this family has hidden_size / num_attention_heads = ${headDim}`,
    );
    const bias = config.bool('attention_bias', true);
    const hiddenDropout = config.number('hidden_dropout', 0);
    const partial = { field: 'rotary_pct', fallback: 0.25 };
    const ropeOptions = { headDim, maxPositions, thetaField: 'rotary_emb_base', partial };
    const spec = classic(config, {
      family: 'gpt_neox',
      vocabSize: config.size('vocab_size', 50432),
      hiddenSize,
      layers,
      heads,
      headDim,
      maxPositions,
      positions: { kind: 'rope', interleaved: false, ...config.rope(ropeOptions) },
      eps: config.number('layer_norm_eps', 1e-5),
      mlp: { size: config.size('intermediate_size', 24576), activation: config.activation('hidden_act', 'gelu') },
      tied: config.bool('tie_word_embeddings', false),
    });
    const dropout = config.number('attention_dropout', 0);
    return {
      ...spec,
      parallel: config.bool('use_parallel_residual', true) ? 'two-norms' : false,
      attention: { ...spec.attention, layout: 'grouped', qkvBias: bias, outBias: bias, dropout },
      dropout: { embedding: hiddenDropout, residual: hiddenDropout },
    };
  },
  names: {
    basePrefix: 'gpt_neox',
    embedding: 'gpt_neox.embed_in',
    layer: (index) => `gpt_neox.layers.${index}`,
    attentionNorm: 'input_layernorm',
    mlpNorm: 'post_attention_layernorm',
    qkv: ['attention.query_key_value'],
    out: 'attention.dense',
    up: ['mlp.dense_h_to_4h'],
    down: 'mlp.dense_4h_to_h',
    finalNorm: 'gpt_neox.final_layer_norm',
    head: 'embed_out',
    transposed: false,
    ignored: /\.attention\.((masked_)?bias|rotary_emb\.inv_freq)$/,
  },
  loraTargets: ['query_key_value'],
};
