/** Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on q, k and v, and optional windows in the upper layers. */

import { headsOf, llamaLike, llamaLikeNames, llamaLikeTargets, qwenWindows } from './llama-like.ts';
import type { Family } from './spec.ts';

export const qwen2: Family = {
  modelType: 'qwen2',
  architectures: headsOf('Qwen2'),
  spec(config) {
    const spec = llamaLike(config, 'qwen2', {
      vocabSize: 151936,
      intermediateSize: 22016,
      kvHeads: 32,
      maxPositions: 32768,
      eps: 1e-6,
    });
    return { ...spec, attention: { ...spec.attention, qkvBias: true, windows: qwenWindows(config, spec.layers) } };
  },
  names: llamaLikeNames,
  loraTargets: llamaLikeTargets,
};
