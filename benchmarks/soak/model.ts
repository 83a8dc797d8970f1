/** The smallest model that is still a whole one: a Llama of 16 dimensions and one layer, with the tokenizer of models/tiny. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

const config = {
  model_type: 'llama',
  architectures: ['LlamaForCausalLM'],
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  tie_word_embeddings: true,
};

/** Its config.json in the folder, for `--from-config`. */
export function writeModelConfig(folder: string): string {
  const path = join(folder, 'soak-model.json');
  writeFileSync(path, JSON.stringify(config));
  return path;
}
