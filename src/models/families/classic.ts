/** What the GPTs, BLOOM and Falcon share: layer norms, a plain MLP, as many key-value heads as query heads; and names. */

import { unlimited } from './heads.ts';
import type { Activation, ConfigReader, DecoderSpec, Positions, WeightNames } from './spec.ts';

export interface ClassicShape {
  family: string;
  vocabSize: number;
  hiddenSize: number;
  layers: number;
  heads: number;
  headDim: number;
  maxPositions: number;
  positions: Positions;
  eps: number;
  mlp: { size: number; activation: Activation };
  tied: boolean;
}

/** Biases everywhere, no dropout, attention and MLP one after the other; a family states what differs. */
export function classic(config: ConfigReader, shape: ClassicShape): DecoderSpec {
  const { eps, heads, headDim, mlp, ...rest } = shape;
  return {
    ...rest,
    norm: { kind: 'layer', eps, bias: true },
    embeddingNorm: false,
    normPlace: 'pre',
    parallel: false,
    attention: {
      heads,
      kvHeads: heads,
      headDim,
      scale: headDim ** -0.5,
      scaleByLayer: false,
      layout: 'blocked',
      qkvBias: true,
      outBias: true,
      windows: unlimited(shape.layers),
      dropout: 0,
    },
    mlp: { ...mlp, gated: false, bias: true },
    headBias: false,
    dropout: { embedding: 0, residual: 0 },
    initializerRange: config.number('initializer_range', 0.02),
  };
}

/** GPT-2's and GPT-J's names for the common sizes. */
export const gptAliases = {
  n_embd: ['hidden_size'],
  n_positions: ['max_position_embeddings'],
  n_head: ['num_attention_heads'],
  n_layer: ['num_hidden_layers'],
};

const transformer = {
  basePrefix: 'transformer',
  layer: (index: number) => `transformer.h.${index}`,
  finalNorm: 'transformer.ln_f',
  head: 'lm_head',
  transposed: false,
};

/** The weight names that GPT-2, GPT-Neo and GPT-J have in common. */
export const gptNames = {
  ...transformer,
  embedding: 'transformer.wte',
  attentionNorm: 'ln_1',
} satisfies Partial<WeightNames>;

/** The weight names of GPT-2 and GPT-Neo, except those of attention. */
export const gpt2Names = {
  ...gptNames,
  positions: 'transformer.wpe',
  mlpNorm: 'ln_2',
  up: ['mlp.c_fc'],
  down: 'mlp.c_proj',
} satisfies Partial<WeightNames>;

/** The weight names of BLOOM and Falcon, which follow Megatron's. */
export const megatronNames: WeightNames = {
  ...transformer,
  embedding: 'transformer.word_embeddings',
  attentionNorm: 'input_layernorm',
  qkv: ['self_attention.query_key_value'],
  out: 'self_attention.dense',
  up: ['mlp.dense_h_to_4h'],
  down: 'mlp.dense_4h_to_h',
};
