/** What a configuration says of a model, what it may not say, and where the families differ. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.ts';
import { families, familyOf } from './index.ts';
import type { DecoderSpec, Positions } from './spec.ts';

const specOf = (config: object): DecoderSpec => familyOf(config, 'config.json').spec;
const rope = (config: object) => specOf(config).positions as Extract<Positions, { kind: 'rope' }>;

/** Small enough to read, complete enough to be accepted. */
const llama = { model_type: 'llama', hidden_size: 32, num_attention_heads: 4, num_hidden_layers: 2 };
const qwen2 = { ...llama, model_type: 'qwen2', num_key_value_heads: 2 };
const falcon = { ...llama, model_type: 'falcon' };
const neox = { ...llama, model_type: 'gpt_neox' };

describe('familyOf', () => {
  it('refuses what it does not know by name', () => {
    expect(() => specOf({ model_type: 'qwen5' })).toThrow(
      /"qwen5" is not supported\. Did you mean "qwen2"\?.*gpt2, gpt_neo/,
    );
    expect(() => specOf({ hidden_size: 3 })).toThrow(UserError);
    expect(() => specOf(null as unknown as object)).toThrow(/config\.json must hold a JSON object/);
    expect(() => specOf({ hidden_size: 3 })).toThrow(/model_type is missing/);
  });

  it.each([
    [{ hidden_size: '32' }, /hidden_size must be a whole number, not "32"/],
    [{ hidden_size: 0 }, /hidden_size must be above zero/],
    [{ num_hidden_layers: 1e9 }, /num_hidden_layers is 1000000000; no model has more than 4096/],
    [{ vocab_size: 2 ** 40 }, /vocab_size is 1099511627776; no model has more/],
    [{ num_attention_heads: 5 }, /num_attention_heads \(5\) must divide the hidden size \(32\)/],
    [{ num_key_value_heads: 3 }, /num_key_value_heads \(3\) must divide/],
    [{ rms_norm_eps: 'small' }, /rms_norm_eps must be a number/],
    [{ attention_bias: 1 }, /attention_bias must be true or false/],
    [{ hidden_act: 'gegelu' }, /hidden_act is "gegelu".*silu/],
    [{ hidden_act: 'constructor' }, /hidden_act is "constructor".*silu/],
    [
      { quantization_config: { bits: 4 } },
      /quantization_config says that the weights were quantised by an unnamed method.*--quant-type/,
    ],
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
