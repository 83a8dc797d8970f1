/** Qwen3 (Yang et al. 2025): an RMS norm on each head of q and k, a head size of its own, no biases unless asked. */

import { headsOf, llamaLike, llamaLikeNames, llamaLikeTargets, qwenWindows } from './llama-like.ts';
import type { Family } from './spec.ts';

export const qwen3: Family = {
  modelType: 'qwen3',
  architectures: headsOf('Qwen3'),
  spec(config) {
    const spec = llamaLike(config, 'qwen3', {
      vocabSize: 151936,
      intermediateSize: 22016,
      kvHeads: 32,
      headDim: 128,
      maxPositions: 32768,
      eps: 1e-6,
    });
    const bias = config.bool('attention_bias', false);
    return {
      ...spec,
      attention: {
        ...spec.attention,
        qkvBias: bias,
        outBias: bias,
        qkNorm: { over: 'head', eps: spec.norm.eps },
        windows: qwenWindows(config, spec.layers),
      },
    };
  },
  names: { ...llamaLikeNames, qNorm: 'self_attn.q_norm', kNorm: 'self_attn.k_norm' },
  loraTargets: llamaLikeTargets,
};
