/** Configurations as published on the hub. */
import { describe, expect, it } from 'vitest';
import { familyOf } from './index.ts';
import type { DecoderSpec } from './spec.ts';

const specOf = (config: object): DecoderSpec => familyOf(config, 'config.json').spec;

describe('published configurations', () => {
  it('reads GPT-2 as it lies on the hub', () => {
    const config = {
      ...{ model_type: 'gpt2', architectures: ['GPT2LMHeadModel'], vocab_size: 50257, n_ctx: 1024, n_positions: 1024 },
      ...{ n_embd: 768, n_head: 12, n_layer: 12, activation_function: 'gelu_new', layer_norm_epsilon: 1e-5 },
      ...{ attn_pdrop: 0.1, embd_pdrop: 0.1, resid_pdrop: 0.1, initializer_range: 0.02, summary_type: 'cls_index' },
      ...{ bos_token_id: 50256, eos_token_id: 50256, task_specific_params: { 'text-generation': { do_sample: true } } },
    };
    const { family, spec, names } = familyOf(config, 'config.json');
    expect(family.loraTargets).toEqual(['c_attn']);
    expect(names.transposed).toBe(true);
    expect(spec).toEqual({
      family: 'gpt2',
      vocabSize: 50257,
      hiddenSize: 768,
      layers: 12,
      maxPositions: 1024,
      positions: { kind: 'learned', count: 1024 },
      norm: { kind: 'layer', eps: 1e-5, bias: true },
      embeddingNorm: false,
      normPlace: 'pre',
      parallel: false,
      attention: {
        heads: 12,
        kvHeads: 12,
        headDim: 64,
        scale: 0.125,
        scaleByLayer: false,
        layout: 'blocked',
        qkvBias: true,
        outBias: true,
        windows: Array(12).fill(null),
        dropout: 0.1,
      },
      mlp: { size: 3072, gated: false, activation: 'gelu_tanh', bias: true },
      tied: true,
      headBias: false,
      dropout: { embedding: 0.1, residual: 0.1 },
      initializerRange: 0.02,
    });
  });

  /** With the notes that their makers left in them. */
  it.each<[string, object, object]>([
    [
      'pythia-70m',
      {
        ...{
          model_type: 'gpt_neox',
          hidden_act: 'gelu',
          hidden_size: 512,
          intermediate_size: 2048,
          layer_norm_eps: 1e-5,
        },
        ...{
          num_attention_heads: 8,
          num_hidden_layers: 6,
          rotary_emb_base: 10000,
          rotary_pct: 0.25,
          torch_dtype: 'float16',
        },
        ...{
          use_parallel_residual: true,
          max_position_embeddings: 2048,
          vocab_size: 50304,
          tie_word_embeddings: false,
        },
      },
      { parallel: 'two-norms', positions: { theta: 10000, rotaryDim: 16 }, attention: { qkvBias: true, headDim: 64 } },
    ],
    [
      'bloom-560m',
      {
        ...{
          model_type: 'bloom',
          n_embed: 1024,
          n_inner: null,
          n_layer: 24,
          num_attention_heads: 16,
          offset_alibi: 100,
        },
        ...{
          attention_softmax_in_fp32: true,
          bias_dropout_fusion: true,
          masked_softmax_fusion: true,
          skip_bias_add: true,
        },
        ...{ pretraining_tp: 1, slow_but_exact: false, seq_length: 2048, vocab_size: 250880, unk_token_id: 0 },
      },
      { hiddenSize: 1024, layers: 24, tied: true, attention: { headDim: 64, layout: 'grouped' }, mlp: { size: 4096 } },
    ],
    [
      'falcon-7b',
      {
        ...{
          model_type: 'falcon',
          alibi: false,
          apply_residual_connection_post_layernorm: false,
          auto_map: {},
          bias: false,
        },
        ...{ hidden_size: 4544, multi_query: true, new_decoder_architecture: false, num_attention_heads: 71 },
        ...{ num_hidden_layers: 32, parallel_attn: true, torch_dtype: 'bfloat16', vocab_size: 65024 },
      },
      {
        parallel: 'one-norm',
        tied: true,
        attention: { kvHeads: 1, headDim: 64 },
        mlp: { size: 18176, activation: 'gelu' },
      },
    ],
    [
      'gpt-j-6b',
      {
        ...{
          model_type: 'gptj',
          n_embd: 4096,
          n_head: 16,
          n_inner: null,
          n_layer: 28,
          n_positions: 2048,
          rotary: true,
        },
        ...{ rotary_dim: 64, scale_attn_weights: true, gradient_checkpointing: false, vocab_size: 50400 },
      },
      { headBias: true, positions: { rotaryDim: 64, interleaved: true }, attention: { headDim: 256, scale: 1 / 16 } },
    ],
    [
      'Llama-3.1-8B',
      {
        ...{
          model_type: 'llama',
          hidden_size: 4096,
          intermediate_size: 14336,
          num_attention_heads: 32,
          num_hidden_layers: 32,
        },
        ...{
          num_key_value_heads: 8,
          rms_norm_eps: 1e-5,
          max_position_embeddings: 131072,
          pretraining_tp: 1,
          mlp_bias: false,
        },
        rope_scaling: {
          ...{ factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192 },
          rope_type: 'llama3',
        },
        ...{ rope_theta: 500000.0, tie_word_embeddings: false, torch_dtype: 'bfloat16', vocab_size: 128256 },
      },
      { positions: { theta: 500000, rotaryDim: 128, scaling: { kind: 'llama3', originalMax: 8192 } } },
    ],
    [
      'Qwen2.5-0.5B',
      {
        ...{
          model_type: 'qwen2',
          hidden_size: 896,
          intermediate_size: 4864,
          max_window_layers: 24,
          num_attention_heads: 14,
        },
        ...{
          num_hidden_layers: 24,
          num_key_value_heads: 2,
          rope_theta: 1000000.0,
          sliding_window: 32768,
          use_mrope: false,
        },
        ...{ tie_word_embeddings: true, use_sliding_window: false, vocab_size: 151936, max_position_embeddings: 32768 },
      },
      {
        tied: true,
        positions: { theta: 1e6, rotaryDim: 64 },
        attention: { qkvBias: true, windows: Array(24).fill(null) },
      },
    ],
    [
      'gpt-neo-125m',
      {
        ...{
          model_type: 'gpt_neo',
          activation_function: 'gelu_new',
          hidden_size: 768,
          intermediate_size: null,
          num_heads: 12,
        },
        ...{
          num_layers: 12,
          attention_types: [[['global', 'local'], 6]],
          window_size: 256,
          resid_dropout: 0,
          vocab_size: 50257,
        },
        ...{
          attention_layers: Array(6).fill(['global', 'local']).flat(),
          max_position_embeddings: 2048,
          summary_type: 'x',
        },
      },
      {
        mlp: { size: 3072 },
        attention: { scale: 1, qkvBias: false, outBias: true, windows: Array(6).fill([null, 256]).flat() },
      },
    ],
  ])('reads %s', (_, config, expected) => {
    expect(specOf(config)).toMatchObject(expected);
  });
});
