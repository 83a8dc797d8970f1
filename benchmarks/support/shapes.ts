/** The work that attune and its peers are both given: model shapes and sequence lengths, the same numbers in every program. */
import { UserError } from '../../src/errors.ts';
import type { Model } from '../../src/models/index.ts';
import { noGrad, scope } from '../../src/tensor/index.ts';

/** A dtype that models are measured in, by the name that an option gives it. */
export function dtypeNamed(name: string): 'float32' | 'bfloat16' | 'float16' {
  if (name === 'float32' || name === 'bfloat16' || name === 'float16') return name;
  throw new UserError(`--dtype is float32, bfloat16 or float16, not "${name}"`);
}

/** Gives a model of random weights such as a checkpoint of this dtype has (`--weights`). */
export function roundWeights(model: Model, dtype: string): void {
  const narrow = dtypeNamed(dtype);
  noGrad(() => {
    for (const [, weight] of model.decoder.parameters()) scope(() => void weight.copy_(weight.to(narrow)));
  });
}

/** A Llama of 15M parameters, for CPUs. */
export const LLAMA_15M = {
  model_type: 'llama',
  vocab_size: 32000,
  hidden_size: 288,
  intermediate_size: 768,
  num_hidden_layers: 6,
  num_attention_heads: 6,
  num_key_value_heads: 6,
  max_position_embeddings: 1024,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  dtype: 'float32',
};

/** Qwen3-0.6B's own shape, for GPUs. */
export const QWEN3_06B = {
  model_type: 'qwen3',
  vocab_size: 151936,
  hidden_size: 1024,
  intermediate_size: 3072,
  num_hidden_layers: 28,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  head_dim: 128,
  max_position_embeddings: 40960,
  rope_theta: 1e6,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  dtype: 'bfloat16',
};

/** Qwen3-1.7B's. */
export const QWEN3_17B = { ...QWEN3_06B, hidden_size: 2048, intermediate_size: 6144 };

/** Qwen3-4B's. */
export const QWEN3_4B = {
  ...QWEN3_06B,
  hidden_size: 2560,
  intermediate_size: 9728,
  num_hidden_layers: 36,
  num_attention_heads: 32,
};

/** A Llama of 110M parameters. */
export const LLAMA_110M = {
  ...LLAMA_15M,
  hidden_size: 768,
  intermediate_size: 2048,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  num_key_value_heads: 12,
};

/** A Llama of 316M parameters, whose weights exceed every cache of a CPU. */
export const LLAMA_316M = {
  ...LLAMA_15M,
  hidden_size: 1024,
  intermediate_size: 2816,
  num_hidden_layers: 24,
  num_attention_heads: 16,
  num_key_value_heads: 8,
};

/** A Llama of a billion parameters. */
export const LLAMA_1B = {
  ...LLAMA_15M,
  hidden_size: 2048,
  intermediate_size: 8192,
  num_hidden_layers: 16,
  num_attention_heads: 32,
  num_key_value_heads: 8,
};

/** Qwen3-8B's own shape. */
export const QWEN3_8B = {
  ...QWEN3_06B,
  hidden_size: 4096,
  intermediate_size: 12288,
  num_hidden_layers: 36,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  tie_word_embeddings: false,
};

/** Lengths like those of HH-RLHF's replies: 64 draws of a log-normal, fixed. */
export const GPU_LENGTHS = [
  151, 176, 281, 161, 463, 58, 208, 74, 166, 140, 140, 39, 182, 267, 558, 309, 34, 73, 333, 82, 198, 60, 298, 392, 208,
  208, 195, 109, 255, 167, 186, 242, 548, 623, 144, 253, 224, 472, 54, 95, 292, 262, 42, 47, 496, 215, 260, 200, 97, 63,
  90, 66, 138, 173, 98, 963, 323, 82, 158, 162, 204, 121, 296, 185,
];
/** The same, shorter, for CPUs; 32 of them. */
export const CPU_LENGTHS = [
  87, 101, 162, 92, 267, 34, 120, 42, 95, 81, 81, 22, 105, 154, 322, 178, 19, 42, 192, 47, 114, 34, 172, 226, 120, 120,
  113, 62, 147, 96, 107, 139,
];

/** Token ids that mean nothing, never special ones. */
export function randomIds(length: number, vocabulary: number, salt: number): number[] {
  return Array.from(
    { length },
    (_, i) => 10 + ((i * 7919 + salt * 104729 + ((i * i * 31) % 977)) % (vocabulary - 1000)),
  );
}
