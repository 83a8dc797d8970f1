/** A model that is small enough to check by hand and in which every part changes the result. */
import { type DType, noGrad } from '../../tensor/index.ts';
import { initModel, type Model } from '../index.ts';

export const SHAPE = {
  vocab_size: 40,
  hidden_size: 24,
  intermediate_size: 52,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: false,
};

/** Weights and biases that are not zero, so that omitting one is noticed. */
export function filled(config: Record<string, unknown>, dtype: DType = 'float32'): Model {
  const model = initModel(config, { seed: 1, dtype });
  noGrad(() => {
    for (const [, parameter] of model.decoder.parameters()) parameter.normal_(0, 0.3);
  });
  return model;
}
