/** Mistral (Jiang et al. 2023): Llama with a sliding window in every layer; later versions set it to null. */

import { headsOf, llamaLike, llamaLikeNames, llamaLikeTargets } from './llama-like.ts';
import type { ConfigReader, Family } from './spec.ts';

export const mistral: Family = {
  modelType: 'mistral',
  architectures: headsOf('Mistral'),
  spec(config) {
    const spec = llamaLike(config, 'mistral', {
      vocabSize: 32000,
      intermediateSize: 14336,
      kvHeads: 8,
      maxPositions: 131072,
      eps: 1e-6,
    });
    const window = config.sizeOrNull('sliding_window', 4096);
    checkLayerTypes(config, window);
    return { ...spec, attention: { ...spec.attention, windows: spec.attention.windows.map(() => window) } };
  },
  names: llamaLikeNames,
  loraTargets: llamaLikeTargets,
};

/**
 * All layers of Mistral are alike: a `layer_types` that says otherwise belongs to another model (Ministral) and is
 * refused.
 */
function checkLayerTypes(config: ConfigReader, window: number | null): void {
  const types = config.optional('layer_types');
  const expected = window === null ? 'full_attention' : 'sliding_attention';
  if (types === null || (Array.isArray(types) && types.every((type) => type === expected))) return;
  config.fail('layer_types', `must be "${expected}" in every layer, as sliding_window says`);
}
