/** What Llama, Mistral, Qwen and OLMo-2 share: RMS norms, whole-head rope, grouped heads, a gated MLP; and their names. */

import { groupedHeads, headSize, unlimited } from './heads.ts';
import type { ConfigReader, DecoderSpec, WeightNames } from './spec.ts';

export interface LlamaLikeDefaults {
  vocabSize: number;
  intermediateSize: number;
  /** 'same' means as many as query heads. */
  kvHeads: number | 'same';
  /** The head size, if the family gives it independently of the hidden size. */
  headDim?: number;
  maxPositions: number;
  eps: number;
}

export function llamaLike(config: ConfigReader, family: string, defaults: LlamaLikeDefaults): DecoderSpec {
  const hiddenSize = config.size('hidden_size', 4096);
  const layers = config.size('num_hidden_layers', 32);
  const heads = config.size('num_attention_heads', 32);
  const kvHeads = config.sizeOrNull('num_key_value_heads', defaults.kvHeads === 'same' ? heads : defaults.kvHeads);
  const headDim = config.sizeOrNull('head_dim', defaults.headDim ?? null) ?? headSize(config, heads, hiddenSize);
  const maxPositions = config.size('max_position_embeddings', defaults.maxPositions);
  return {
    family,
    vocabSize: config.size('vocab_size', defaults.vocabSize),
    hiddenSize,
    layers,
    maxPositions,
    positions: { kind: 'rope', interleaved: false, ...config.rope({ headDim, maxPositions }) },
    norm: { kind: 'rms', eps: config.number('rms_norm_eps', defaults.eps), bias: false },
    embeddingNorm: false,
    normPlace: 'pre',
    parallel: false,
    attention: {
      heads,
      kvHeads: groupedHeads(config, 'num_key_value_heads', heads, kvHeads ?? heads),
      headDim,
      scale: headDim ** -0.5,
      scaleByLayer: false,
      layout: 'blocked',
      qkvBias: false,
      outBias: false,
      windows: unlimited(layers),
      dropout: config.number('attention_dropout', 0),
    },
    mlp: {
      size: config.size('intermediate_size', defaults.intermediateSize),
      gated: true,
      activation: config.activation('hidden_act', 'silu'),
      bias: false,
    },
    tied: config.bool('tie_word_embeddings', false),
    headBias: false,
    dropout: { embedding: 0, residual: 0 },
    initializerRange: config.number('initializer_range', 0.02),
  };
}

export const llamaLikeNames: WeightNames = {
  basePrefix: 'model',
  embedding: 'model.embed_tokens',
  layer: (index) => `model.layers.${index}`,
  attentionNorm: 'input_layernorm',
  mlpNorm: 'post_attention_layernorm',
  qkv: ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'],
  out: 'self_attn.o_proj',
  up: ['mlp.gate_proj', 'mlp.up_proj'],
  down: 'mlp.down_proj',
  finalNorm: 'model.norm',
  head: 'lm_head',
  transposed: false,
  ignored: /\.rotary_emb\.inv_freq$/,
};

export const llamaLikeTargets = ['q_proj', 'k_proj', 'v_proj', 'o_proj'];

/** A family's three entries in `architectures`, by head. */
export function headsOf(name: string): { causal: string; sequence: string; token: string } {
  return {
    causal: `${name}ForCausalLM`,
    sequence: `${name}ForSequenceClassification`,
    token: `${name}ForTokenClassification`,
  };
}

/** Qwen's sliding windows: `layer_types` says which layers have one; without it, those from max_window_layers on. */
export function qwenWindows(config: ConfigReader, layers: number): (number | null)[] {
  const used = config.bool('use_sliding_window', false);
  const given = config.sizeOrNull('sliding_window', 4096);
  const window = used ? given : null;
  const first = config.int('max_window_layers', 28);
  const types = config.optional('layer_types');
  if (types === null) return Array.from({ length: layers }, (_, i) => (i >= first ? window : null));
  if (!Array.isArray(types) || types.length !== layers) {
    config.fail('layer_types', `must be a list with one entry for each of the ${layers} layers`);
  }
  return types.map((type) => {
    if (type === 'full_attention' || type === 'attention') return null;
    if (type !== 'sliding_attention') {
      config.fail('layer_types', `holds ${JSON.stringify(type)}: "full_attention" and "sliding_attention" are known`);
    }
    if (window === null) {
      config.fail(
        'layer_types',
        'holds "sliding_attention", but use_sliding_window is false or sliding_window is null',
      );
    }
    return window;
  });
}
