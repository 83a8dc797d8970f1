/** No field of a configuration is silently ignored. */
import { describe, expect, it } from 'vitest';
import { families, familyOf } from './index.ts';

describe('every field of transformers’ config classes (5.18)', () => {
  /** Fields that do not change what the decoder computes, or only describe a head. */
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

  /** A value of a kind that no field can have: a field that is read refuses it by name. */
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

  /** Other names of a field, so that a probe does not use them. */
  function aliased(type: string, name: string): string[] {
    const aliases = families.find((family) => family.modelType === type)?.aliases ?? {};
    const group = Object.entries(aliases).find(([key, others]) => key === name || others.includes(name));
    return group ? [group[0], ...group[1]] : [name];
  }
});
