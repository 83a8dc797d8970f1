/** OLMo-2 (OLMo Team 2024): norms after attention and MLP instead of before, and over all heads of q and k at once. */

import { llamaLike, llamaLikeNames, llamaLikeTargets } from './llama-like.ts';
import type { Family } from './spec.ts';

export const olmo2: Family = {
  modelType: 'olmo2',
  architectures: { causal: 'Olmo2ForCausalLM', sequence: 'Olmo2ForSequenceClassification' },
  spec(config) {
    const spec = llamaLike(config, 'olmo2', {
      vocabSize: 50304,
      intermediateSize: 11008,
      kvHeads: 'same',
      maxPositions: 2048,
      eps: 1e-5,
    });
    const bias = config.bool('attention_bias', false);
    return {
      ...spec,
      normPlace: 'post',
      attention: { ...spec.attention, qkvBias: bias, outBias: bias, qkNorm: { over: 'all', eps: spec.norm.eps } },
    };
  },
  names: {
    ...llamaLikeNames,
    attentionNorm: 'post_attention_layernorm',
    mlpNorm: 'post_feedforward_layernorm',
    qNorm: 'self_attn.q_norm',
    kNorm: 'self_attn.k_norm',
  },
  loraTargets: llamaLikeTargets,
};
