/** Llama 2, 3 and 3.1 (Touvron et al. 2023; Grattafiori et al. 2024), and the many that share its form. */

import { headsOf, llamaLike, llamaLikeNames, llamaLikeTargets } from './llama-like.ts';
import type { Family } from './spec.ts';

export const llama: Family = {
  modelType: 'llama',
  architectures: headsOf('Llama'),
  spec(config) {
    const spec = llamaLike(config, 'llama', {
      vocabSize: 32000,
      intermediateSize: 11008,
      kvHeads: 'same',
      maxPositions: 2048,
      eps: 1e-6,
    });
    const bias = config.bool('attention_bias', false);
    return {
      ...spec,
      attention: { ...spec.attention, qkvBias: bias, outBias: bias },
      mlp: { ...spec.mlp, bias: config.bool('mlp_bias', false) },
    };
  },
  names: llamaLikeNames,
  loraTargets: llamaLikeTargets,
};
