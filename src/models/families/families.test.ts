import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.ts';
import type { DecoderSpec, Positions } from '../spec.ts';
import { families, familyOf } from './index.ts';

const specOf = (config: object): DecoderSpec => familyOf(config, 'config.json').spec;
const rope = (config: object) => specOf(config).positions as Extract<Positions, { kind: 'rope' }>;

/** Small enough to read, complete enough to be accepted. */
const llama = { model_type: 'llama', hidden_size: 32, num_attention_heads: 4, num_hidden_layers: 2 };
const qwen2 = { ...llama, model_type: 'qwen2', num_key_value_heads: 2 };
const falcon = { ...llama, model_type: 'falcon' };
const neox = { ...llama, model_type: 'gpt_neox' };

describe('familyOf', () => {
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

  /** As they lie on the hub, with the notes that their makers left in them. */
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

  it('refuses what it does not know by name', () => {
    expect(() => specOf({ model_type: 'qwen5' })).toThrow(
      /"qwen5" is not supported\. Did you mean "qwen2"\?.*gpt2, gpt_neo/,
    );
    expect(() => specOf({ hidden_size: 3 })).toThrow(UserError);
    expect(() => specOf({ hidden_size: 3 })).toThrow(/model_type is missing/);
  });

  it.each([
    [{ hidden_size: '32' }, /hidden_size must be a whole number, not "32"/],
    [{ hidden_size: 0 }, /hidden_size must be above zero/],
    [{ num_attention_heads: 5 }, /num_attention_heads \(5\) must divide the hidden size \(32\)/],
    [{ num_key_value_heads: 3 }, /num_key_value_heads \(3\) must divide/],
    [{ rms_norm_eps: 'small' }, /rms_norm_eps must be a number/],
    [{ attention_bias: 1 }, /attention_bias must be true or false/],
    [{ hidden_act: 'gegelu' }, /hidden_act is "gegelu".*silu/],
    [{ quantization_config: { bits: 4 } }, /quantization_config says that the weights are quantised.*attune quantize/],
    [{ is_encoder_decoder: true }, /is_encoder_decoder/],
    [{ pruned_heads: { 0: [1] } }, /pruned_heads/],
    [
      { sliding_window: 128, max_position_embeddings: 2048 },
      /sliding_window is 128, but this family has no sliding window/,
    ],
    [{ layer_types: ['full_attention', 'sliding_attention'] }, /layer_types holds "sliding_attention"/],
    [{ attn_logit_softcapping: 50 }, /attn_logit_softcapping changes the computation/],
    [{ num_local_experts: 8 }, /num_local_experts changes the computation/],
    [{ partial_rotary_factor: 0.5 }, /partial_rotary_factor is 0.5: this family turns whole heads/],
    [
      { rope_scaling: { type: 'longrope', factor: 2 } },
      /rope_scaling\.rope_type is "longrope": supported are default, linear/,
    ],
    [{ rope_scaling: { type: 'su', short_factor: [1] } }, /rope_scaling\.short_factor/],
    [{ rope_scaling: { type: 'linear' } }, /rope_scaling\.factor is missing/],
    [{ rope_scaling: { type: 'linear', factor: '2' } }, /rope_scaling\.factor must be a number/],
    [{ rope_scaling: 2 }, /rope_scaling must be an object/],
    [{ rope_scaling: { type: 'linear', factor: 2, stretch: 3 } }, /rope_scaling\.stretch is not known/],
    [{ rope_parameters: { full_attention: { rope_type: 'default' } } }, /rope_parameters\.full_attention/],
    [
      { rope_parameters: { rope_type: 'llama3', factor: 8, high_freq_factor: 4 } },
      /rope_parameters\.low_freq_factor is missing/,
    ],
  ])('refuses %j', (fields, message) => {
    expect(() => specOf({ ...llama, ...fields })).toThrow(message);
    expect(() => specOf({ ...llama, ...fields })).toThrow(UserError);
  });

  it('leaves notes of other tools alone', () => {
    const notes = {
      ...{
        _name_or_path: 'x',
        auto_map: { AutoConfig: 'y' },
        _attn_implementation: 'sdpa',
        unsloth_version: '1',
        rope_ratio: 1,
      },
      ...{
        pretraining_tp: 1,
        tokenizer_class: 'T',
        id2label: { 0: 'a' },
        quantization_config: null,
        sliding_window: null,
      },
      ...{ layer_types: ['full_attention', 'full_attention'], logits_scaling: 1, clip_qkv: null, num_labels: 1 },
    };
    expect(specOf({ ...llama, ...notes })).toEqual(specOf(llama));
  });

  it('takes a field under its other names, and refuses two that disagree', () => {
    const bloom = { model_type: 'bloom', n_embed: 48, num_attention_heads: 6, num_hidden_layers: 3 };
    expect(specOf(bloom)).toMatchObject({ hiddenSize: 48, layers: 3, attention: { heads: 6, headDim: 8 } });
    expect(specOf({ ...bloom, n_layer: 3 }).layers).toBe(3);
    expect(() => specOf({ ...bloom, n_layer: 4 })).toThrow(
      /n_layer is 4 but num_hidden_layers, another name of it, is 3/,
    );
  });

  it('knows a distinct name, heads and adapter targets for each family', () => {
    expect(families.map((family) => [family.modelType, family.loraTargets.join()])).toEqual([
      ['gpt2', 'c_attn'],
      ['gpt_neo', 'q_proj,v_proj'],
      ['gptj', 'q_proj,v_proj'],
      ['gpt_neox', 'query_key_value'],
      ['llama', 'q_proj,k_proj,v_proj,o_proj'],
      ['mistral', 'q_proj,k_proj,v_proj,o_proj'],
      ['qwen2', 'q_proj,k_proj,v_proj,o_proj'],
      ['qwen3', 'q_proj,k_proj,v_proj,o_proj'],
      ['olmo2', 'q_proj,k_proj,v_proj,o_proj'],
      ['bloom', 'query_key_value'],
      ['falcon', 'query_key_value'],
    ]);
  });
});

describe('rope', () => {
  const scalings = [
    { rope_type: 'linear', factor: 4 },
    { rope_type: 'dynamic', factor: 2 },
    { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 512 },
    { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 512, beta_fast: 16, truncate: false },
  ];
  it.each(scalings)('is the same in both dialects: $rope_type', (scaling) => {
    const { rope_type, ...rest } = scaling;
    const five = rope({ ...llama, rope_parameters: { rope_theta: 5e5, ...scaling } });
    expect(rope({ ...llama, rope_theta: 5e5, rope_scaling: { type: rope_type, ...rest } })).toEqual(five);
    expect(rope({ ...llama, rope_theta: 5e5, rope_scaling: { rope_type, type: rope_type, ...rest } })).toEqual(five);
    expect(five.theta).toBe(5e5);
    expect(five.scaling?.kind).toBe(rope_type);
  });

  it('reads plain rope from either, with 10000 where none is given', () => {
    const plain = { kind: 'rope', interleaved: false, theta: 1e6, rotaryDim: 8 };
    expect(rope({ ...llama, rope_theta: 1e6, rope_scaling: null })).toEqual(plain);
    expect(rope({ ...llama, rope_parameters: { rope_type: 'default', rope_theta: 1e6 } })).toEqual(plain);
    expect(rope(llama).theta).toBe(10_000);
  });

  it('fills in the original length and the temperature', () => {
    const scaled = (scaling: object) => rope({ ...llama, max_position_embeddings: 256, rope_scaling: scaling }).scaling;
    expect(scaled({ type: 'dynamic', factor: 2 })).toMatchObject({ originalMax: 256 });
    expect(scaled({ type: 'yarn', factor: 4 })).toEqual({
      ...{ kind: 'yarn', factor: 4, originalMax: 256, betaFast: 32, betaSlow: 1, truncate: true },
      attentionFactor: 0.1 * Math.log(4) + 1,
    });
    // 0.93343… is what transformers gives for these two weights.
    expect(scaled({ type: 'yarn', factor: 16, mscale: 0.6, mscale_all_dim: 0.9 })).toMatchObject({
      attentionFactor: expect.closeTo(0.9334330004364884, 12),
    });
    expect(scaled({ type: 'yarn', factor: 2, attention_factor: 0.8 })).toMatchObject({ attentionFactor: 0.8 });
  });

  it("reads GPT-NeoX's own names, and an odd share", () => {
    expect(rope(neox)).toMatchObject({ theta: 10_000, rotaryDim: 2 });
    expect(rope({ ...neox, rotary_pct: 0.5, rotary_emb_base: 500 })).toMatchObject({ theta: 500, rotaryDim: 4 });
    expect(rope({ ...neox, rope_parameters: { rope_theta: 500, partial_rotary_factor: 0.5 } })).toMatchObject({
      ...{ theta: 500, rotaryDim: 4 },
    });
    expect(rope({ ...neox, rotary_pct: 0.4 })).toMatchObject({ rotaryDim: 4, exponentDim: 3 });
    expect(() => rope({ ...neox, rope_theta: 500 })).toThrow(
      /rope_theta is 500: this family's name for it is rotary_emb_base/,
    );
  });

  it('refuses two dialects that disagree', () => {
    const both = { rope_scaling: { type: 'linear', factor: 2 }, rope_parameters: { rope_type: 'linear', factor: 4 } };
    expect(() => rope({ ...llama, ...both })).toThrow(/rope_scaling and rope_parameters disagree about factor/);
  });
});

describe('what sets families apart', () => {
  it('windows', () => {
    const windows = (config: object) => specOf(config).attention.windows;
    const mistral = { ...llama, model_type: 'mistral', num_key_value_heads: 2 };
    expect(windows(mistral)).toEqual([4096, 4096]);
    expect(windows({ ...mistral, sliding_window: null })).toEqual([null, null]);
    expect(() => windows({ ...mistral, layer_types: ['full_attention', 'full_attention'] })).toThrow(
      /layer_types must be/,
    );
    expect(windows({ ...qwen2, sliding_window: 4 })).toEqual([null, null]);
    const sliding = { ...qwen2, sliding_window: 4, use_sliding_window: true, max_window_layers: 1 };
    expect(windows(sliding)).toEqual([null, 4]);
    expect(windows({ ...sliding, layer_types: ['sliding_attention', 'full_attention'] })).toEqual([4, null]);
    expect(() => windows({ ...sliding, layer_types: ['sliding_attention'] })).toThrow(
      /one entry for each of the 2 layers/,
    );
    expect(() => windows({ ...sliding, layer_types: ['chunked_attention', 'full_attention'] })).toThrow(
      /chunked_attention/,
    );
    expect(() => windows({ ...qwen2, layer_types: ['sliding_attention', 'full_attention'] })).toThrow(
      /use_sliding_window/,
    );
    const neo = { model_type: 'gpt_neo', hidden_size: 32, num_heads: 4, num_layers: 3, window_size: 5 };
    const types = [
      [['local'], 2],
      [['global'], 1],
    ];
    expect(windows({ ...neo, attention_types: types })).toEqual([5, 5, null]);
    expect(() => windows({ ...neo, attention_types: [[['global'], 2]] })).toThrow(/attention_types describes 2 layers/);
    expect(() => windows({ ...neo, attention_types: [[['strided'], 3]] })).toThrow(/attention_types holds "strided"/);
    expect(() => windows({ ...neo, attention_types: 'global' })).toThrow(/attention_types must look like/);
  });

  it('biases, tying and head sizes', () => {
    expect(specOf(qwen2)).toMatchObject({ tied: false, attention: { qkvBias: true, outBias: false } });
    expect(specOf({ ...llama, attention_bias: true, mlp_bias: true })).toMatchObject({
      ...{ attention: { qkvBias: true, outBias: true }, mlp: { bias: true, gated: true } },
    });
    expect(specOf({ ...llama, head_dim: 16 }).attention).toMatchObject({ headDim: 16, scale: 0.25, kvHeads: 4 });
    expect(specOf({ ...qwen2, model_type: 'qwen3' }).attention).toMatchObject({
      headDim: 128,
      qkNorm: { over: 'head' },
    });
    expect(specOf({ ...llama, model_type: 'olmo2' })).toMatchObject({
      ...{ normPlace: 'post', norm: { eps: 1e-5 }, attention: { qkNorm: { over: 'all', eps: 1e-5 } } },
    });
    expect(specOf({ ...neox, attention_bias: false, use_parallel_residual: false })).toMatchObject({
      ...{ parallel: false, attention: { qkvBias: false, outBias: false, layout: 'grouped' }, mlp: { bias: true } },
    });
  });

  it('GPT-2 and GPT-J options', () => {
    const gpt2 = { model_type: 'gpt2', n_embd: 32, n_head: 2, n_layer: 2 };
    expect(specOf({ ...gpt2, scale_attn_weights: false, n_inner: 40 })).toMatchObject({
      attention: { scale: 1 },
      mlp: { size: 40 },
    });
    expect(specOf({ ...gpt2, scale_attn_by_inverse_layer_idx: true }).attention.scaleByLayer).toBe(true);
    expect(() => specOf({ ...gpt2, add_cross_attention: true })).toThrow(/add_cross_attention/);
    const gptj = { ...gpt2, model_type: 'gptj' };
    expect(rope({ ...gptj, rotary_dim: null })).toMatchObject({ rotaryDim: 16, interleaved: true });
    expect(specOf({ ...gptj, rotary_dim: 4 })).toMatchObject({ tied: false, headBias: true, parallel: 'one-norm' });
    expect(() => specOf(gptj)).toThrow(/rotary_dim is 64: must be even and at most the size of a head \(16\)/);
  });

  it("BLOOM's and Falcon's ALiBi", () => {
    const bloom = { model_type: 'bloom', hidden_size: 64, n_head: 4 };
    expect(specOf(bloom)).toMatchObject({
      positions: { kind: 'alibi', scale: 1, bfloat16: false },
      normPlace: 'pre',
      tied: true,
    });
    expect(specOf({ ...bloom, apply_residual_connection_post_layernorm: true }).normPlace).toBe('pre-residual');
    expect(() => specOf({ ...bloom, pretraining_tp: 4, slow_but_exact: true })).toThrow(/slow_but_exact/);
    expect(specOf({ ...bloom, pretraining_tp: 4, slow_but_exact: false }).layers).toBe(2);
    expect(specOf({ ...falcon, alibi: true }).positions).toEqual({ kind: 'alibi', scale: 8 ** -0.5, bfloat16: true });
  });

  it("Falcon's decoders", () => {
    const of = (fields: object) => {
      const { spec, names } = familyOf({ ...falcon, ...fields }, 'config.json');
      return [spec.parallel, spec.attention.kvHeads, names.attentionNorm, names.mlpNorm];
    };
    expect(of({})).toEqual(['one-norm', 1, 'input_layernorm', undefined]);
    expect(of({ multi_query: false })).toEqual(['one-norm', 4, 'input_layernorm', undefined]);
    expect(of({ parallel_attn: false })).toEqual([false, 1, 'input_layernorm', 'post_attention_layernorm']);
    expect(of({ new_decoder_architecture: true, num_kv_heads: 2 })).toEqual(['two-norms', 2, 'ln_attn', 'ln_mlp']);
    expect(of({ new_decoder_architecture: true, num_ln_in_parallel_attn: 1 })).toEqual([
      ...['one-norm', 4, 'input_layernorm', undefined],
    ]);
    expect(() => of({ new_decoder_architecture: true, parallel_attn: false })).toThrow(/parallel_attn is false/);
    expect(() => of({ num_ln_in_parallel_attn: 2 })).toThrow(/num_ln_in_parallel_attn is 2/);
    expect(() => of({ multi_query: false, num_kv_heads: 2 })).toThrow(/num_kv_heads is 2/);
    expect(specOf({ ...falcon, parallel_attn: false, attention_dropout: 0.2, hidden_dropout: 0.1 }).dropout).toEqual({
      ...{ embedding: 0, residual: 0.1, attentionOutput: 0.2 },
    });
  });
});

describe('every field of transformers’ config classes (5.18)', () => {
  /** Fields that do not change what the decoder computes, or only how a head beside it is made. */
  const harmless = new Set([
    ...[
      'bos_token_id',
      'eos_token_id',
      'pad_token_id',
      'use_cache',
      'is_decoder',
      'pretraining_tp',
      'classifier_dropout',
    ],
    ...['summary_type', 'summary_use_proj', 'summary_activation', 'summary_proj_to_labels', 'summary_first_dropout'],
  ]);
  const fields: Record<string, string> = {
    gpt2: `vocab_size n_positions n_embd n_layer n_head n_inner activation_function resid_pdrop embd_pdrop attn_pdrop
      layer_norm_epsilon initializer_range summary_type summary_use_proj summary_activation summary_proj_to_labels
      summary_first_dropout scale_attn_weights use_cache bos_token_id eos_token_id pad_token_id
      scale_attn_by_inverse_layer_idx reorder_and_upcast_attn add_cross_attention tie_word_embeddings`,
    gpt_neo: `vocab_size max_position_embeddings hidden_size num_layers attention_types num_heads intermediate_size window_size
      activation_function resid_dropout embed_dropout attention_dropout classifier_dropout layer_norm_epsilon
      initializer_range use_cache bos_token_id eos_token_id pad_token_id tie_word_embeddings attention_layers`,
    gptj: `vocab_size n_positions n_embd n_layer n_head rotary_dim n_inner activation_function resid_pdrop embd_pdrop
      attn_pdrop layer_norm_epsilon initializer_range use_cache bos_token_id eos_token_id pad_token_id tie_word_embeddings`,
    llama: `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act
      max_position_embeddings initializer_range rms_norm_eps use_cache pad_token_id bos_token_id eos_token_id pretraining_tp
      tie_word_embeddings rope_parameters attention_bias attention_dropout mlp_bias head_dim`,
    mistral: `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
      hidden_act max_position_embeddings initializer_range rms_norm_eps use_cache pad_token_id bos_token_id eos_token_id
      tie_word_embeddings rope_parameters sliding_window attention_dropout layer_types`,
    qwen2: `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act
      max_position_embeddings initializer_range rms_norm_eps use_cache tie_word_embeddings rope_parameters
      use_sliding_window sliding_window max_window_layers layer_types attention_dropout pad_token_id bos_token_id eos_token_id`,
    qwen3: `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
      hidden_act max_position_embeddings initializer_range rms_norm_eps use_cache tie_word_embeddings rope_parameters
      attention_bias use_sliding_window sliding_window max_window_layers layer_types attention_dropout pad_token_id`,
    olmo2: `vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act
      max_position_embeddings initializer_range use_cache pad_token_id bos_token_id eos_token_id tie_word_embeddings
      rope_parameters attention_bias attention_dropout rms_norm_eps`,
    gpt_neox: `vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act attention_dropout
      hidden_dropout classifier_dropout max_position_embeddings initializer_range layer_norm_eps use_cache bos_token_id
      eos_token_id pad_token_id tie_word_embeddings use_parallel_residual rope_parameters attention_bias is_decoder`,
    bloom: `vocab_size hidden_size n_layer n_head layer_norm_epsilon initializer_range use_cache bos_token_id eos_token_id
      pad_token_id apply_residual_connection_post_layernorm hidden_dropout attention_dropout pretraining_tp slow_but_exact
      tie_word_embeddings`,
    falcon: `vocab_size hidden_size num_hidden_layers num_attention_heads num_ln_in_parallel_attn layer_norm_epsilon
      initializer_range use_cache hidden_dropout attention_dropout num_kv_heads alibi new_decoder_architecture multi_query
      parallel_attn bias max_position_embeddings rope_parameters bos_token_id eos_token_id pad_token_id ffn_hidden_size
      activation tie_word_embeddings`,
  };

  /** A value of no kind that any field can have: a field that is read refuses it, naming itself. */
  const odd = ['odd'];
  it.each(Object.entries(fields))('is read or known to be harmless: %s', (type, names) => {
    const minimal = {
      ...{ model_type: type, rotary_dim: 4, attention_types: [[['global'], 2]] },
      ...{ num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2 },
      ...{ hidden_size: 32 },
    };
    for (const name of names.split(/\s+/)) {
      const rest = Object.fromEntries(Object.entries(minimal).filter(([key]) => !aliased(type, name).includes(key)));
      const read = () => familyOf({ ...rest, [name]: odd }, 'config.json');
      if (harmless.has(name)) expect(read).not.toThrow();
      else expect(read, name).toThrow(name);
    }
  });

  /** Other names of a field, so that a probe does not meet them. */
  function aliased(type: string, name: string): string[] {
    const aliases = families.find((family) => family.modelType === type)?.aliases ?? {};
    const group = Object.entries(aliases).find(([key, others]) => key === name || others.includes(name));
    return group ? [group[0], ...group[1]] : [name];
  }
});
