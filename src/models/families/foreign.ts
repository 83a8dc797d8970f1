/**
 * Config fields that the family did not read. Most are notes (ids, versions, labels, what a trainer wrote) and are ignored.
 * Fields that would change the computation are refused by name: without them it would be a different model.
 */
import type { Reader } from './reader.ts';

type Fault = (value: unknown, config: Reader) => string | undefined;

const unlessEmpty =
  (message: string): Fault =>
  (value) =>
    isEmpty(value) ? undefined : message;

const otherArchitecture: Fault = (value) =>
  isEmpty(value) || value === 1 ? undefined : 'changes the computation and does not belong to this family';

const faults: Record<string, Fault> = {
  quantization_config: (value) => {
    if (isEmpty(value)) return undefined;
    const said = value as Record<string, unknown>;
    const method = said.quant_method ?? (said.load_in_4bit || said.load_in_8bit ? 'bitsandbytes' : 'an unnamed method');
    if (method === 'bitsandbytes') return undefined;
    return `says that the weights were quantised by ${String(method)}: attune reads those of bitsandbytes (4 and 8 bits). Load the original checkpoint, which it can quantise itself (--quant-type)`;
  },
  is_encoder_decoder: unlessEmpty('asks for an encoder-decoder; only decoders are supported'),
  add_cross_attention: unlessEmpty('asks for cross-attention; only decoders without it are supported'),
  pruned_heads: unlessEmpty('lists pruned attention heads, which are not supported: save the model with whole layers'),
  per_layer_config: unlessEmpty('gives layers different shapes, which is not supported'),
  is_causal: (value) => (value === false ? 'is false; only causal attention is supported' : undefined),
  use_bidirectional_attention: unlessEmpty('asks for bidirectional attention; only causal attention is supported'),
  sliding_window: (value, config) => {
    const limit = config.optional<number>('max_position_embeddings') ?? 0;
    if (isEmpty(value) || (typeof value === 'number' && limit > 0 && value >= limit)) return undefined;
    return `is ${JSON.stringify(value)}, but this family has no sliding window: set it to null if the model was trained without`;
  },
  layer_types: (value) => {
    const types: unknown[] = Array.isArray(value) ? value : [value];
    const other = types.find((type) => type !== 'full_attention' && type !== null);
    return other === undefined
      ? undefined
      : `holds ${JSON.stringify(other)}, but all layers of this family see everything`;
  },
};

/** Features of other architectures, which converted or hand-edited configs sometimes contain. */
for (const name of [
  ...['attn_logit_softcapping', 'final_logit_softcapping', 'query_pre_attn_scalar', 'clip_qkv', 'attention_multiplier'],
  ...['embedding_multiplier', 'residual_multiplier', 'logits_scaling', 'logit_scale', 'no_rope_layers', 'kv_lora_rank'],
  ...['num_experts', 'num_local_experts', 'n_routed_experts', 'use_qk_norm', 'qk_layernorm', 'use_mrope'],
  ...['text_config', 'vision_config', 'attention_chunk_size'],
]) {
  faults[name] = otherArchitecture;
}

export function refuseForeignFields(config: Reader): void {
  for (const [name, value] of config.unread()) {
    const fault = Object.hasOwn(faults, name) ? faults[name]?.(value, config) : undefined;
    if (fault !== undefined) config.fail(name, fault);
  }
}

/** Values that mean "absent": null, false, zero, an empty list or object. */
function isEmpty(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.keys(value).length === 0;
  return !value;
}
