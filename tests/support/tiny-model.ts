/** Tiny random models with a tokenizer, for tests: made in a folder of their own in about a second. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { initModel, saveModel } from '../../src/models/index.ts';
import { trainBpe } from '../../src/text/index.ts';

export interface TinyOptions {
  seed?: number;
  vocabSize?: number;
  hiddenSize?: number;
  layers?: number;
  /** More fields of config.json, or others. */
  config?: Record<string, unknown>;
  texts?: readonly string[];
}

const defaultTexts = ['What is 3 + 4? The answer is 7. yes no good bad red blue '.repeat(4), '0 1 2 3 4 5 6 7 8 9 '];

/** Writes a Qwen3-shaped model and its tokenizer into `folder` and returns it. */
export async function tinyModel(folder: string, options: TinyOptions = {}): Promise<string> {
  const { seed = 1, vocabSize = 300, hiddenSize = 32, layers = 2, texts = defaultTexts } = options;
  mkdirSync(folder, { recursive: true });
  const tokenizer = await trainBpe(texts, { out: folder, vocabSize });
  using model = initModel(
    {
      model_type: 'qwen3',
      architectures: ['Qwen3ForCausalLM'],
      vocab_size: tokenizer.vocabSize,
      hidden_size: hiddenSize,
      intermediate_size: 2 * hiddenSize,
      num_hidden_layers: layers,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: hiddenSize / 4,
      max_position_embeddings: 512,
      rms_norm_eps: 1e-6,
      rope_theta: 10_000,
      hidden_act: 'silu',
      tie_word_embeddings: true,
      initializer_range: 0.08,
      eos_token_id: tokenizer.eosId,
      ...options.config,
    },
    { seed, dtype: 'float32', source: join(folder, 'config.json') },
  );
  saveModel(model, folder);
  return folder;
}
