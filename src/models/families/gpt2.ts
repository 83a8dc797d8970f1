/** GPT-2 (Radford et al. 2019): learned positions, one fused projection, matrices kept as [in, out]. */

import { classic, gpt2Names, gptAliases } from './classic.ts';
import { headSize } from './heads.ts';
import type { Family } from './spec.ts';

export const gpt2: Family = {
  modelType: 'gpt2',
  architectures: {
    causal: 'GPT2LMHeadModel',
    sequence: 'GPT2ForSequenceClassification',
    token: 'GPT2ForTokenClassification',
  },
  tokenHead: 'classifier',
  aliases: gptAliases,
  spec(config) {
    const hiddenSize = config.size('n_embd', 768);
    const layers = config.size('n_layer', 12);
    const heads = config.size('n_head', 12);
    const headDim = headSize(config, heads, hiddenSize);
    const maxPositions = config.size('n_positions', 1024);
    // This only changes rounding in half precision; scores are in float32 here anyway.
    config.bool('reorder_and_upcast_attn', false);
    const spec = classic(config, {
      family: 'gpt2',
      vocabSize: config.size('vocab_size', 50257),
      hiddenSize,
      layers,
      heads,
      headDim,
      maxPositions,
      positions: { kind: 'learned', count: maxPositions },
      eps: config.number('layer_norm_epsilon', 1e-5),
      mlp: {
        size: config.sizeOrNull('n_inner', null) ?? 4 * hiddenSize,
        activation: config.activation('activation_function', 'gelu_new'),
      },
      tied: config.bool('tie_word_embeddings', true),
    });
    return {
      ...spec,
      attention: {
        ...spec.attention,
        scale: config.bool('scale_attn_weights', true) ? spec.attention.scale : 1,
        scaleByLayer: config.bool('scale_attn_by_inverse_layer_idx', false),
        dropout: config.number('attn_pdrop', 0.1),
      },
      dropout: { embedding: config.number('embd_pdrop', 0.1), residual: config.number('resid_pdrop', 0.1) },
    };
  },
  names: {
    ...gpt2Names,
    qkv: ['attn.c_attn'],
    out: 'attn.c_proj',
    transposed: true,
    ignored: /\.attn\.(masked_)?bias$/,
  },
  loraTargets: ['c_attn'],
};
