/** GPT-Neo (Black et al. 2021): GPT-2 with separate projections, unscaled scores, and local attention in some layers. */

import { classic, gpt2Names } from './classic.ts';
import { headSize } from './heads.ts';
import type { ConfigReader, Family } from './spec.ts';

export const gptNeo: Family = {
  modelType: 'gpt_neo',
  architectures: {
    causal: 'GPTNeoForCausalLM',
    sequence: 'GPTNeoForSequenceClassification',
    token: 'GPTNeoForTokenClassification',
  },
  tokenHead: 'classifier',
  aliases: { num_heads: ['num_attention_heads'], num_layers: ['num_hidden_layers'] },
  spec(config) {
    const hiddenSize = config.size('hidden_size', 2048);
    const layers = config.size('num_layers', 24);
    const heads = config.size('num_heads', 16);
    const maxPositions = config.size('max_position_embeddings', 2048);
    const window = config.size('window_size', 256);
    const spec = classic(config, {
      family: 'gpt_neo',
      vocabSize: config.size('vocab_size', 50257),
      hiddenSize,
      layers,
      heads,
      headDim: headSize(config, heads, hiddenSize),
      maxPositions,
      positions: { kind: 'learned', count: maxPositions },
      eps: config.number('layer_norm_epsilon', 1e-5),
      mlp: {
        size: config.sizeOrNull('intermediate_size', null) ?? 4 * hiddenSize,
        activation: config.activation('activation_function', 'gelu_new'),
      },
      tied: config.bool('tie_word_embeddings', true),
    });
    return {
      ...spec,
      attention: {
        ...spec.attention,
        scale: 1,
        qkvBias: false,
        windows: attentionLayers(config, layers).map((kind) => (kind === 'local' ? window : null)),
        dropout: config.number('attention_dropout', 0),
      },
      dropout: { embedding: config.number('embed_dropout', 0), residual: config.number('resid_dropout', 0) },
    };
  },
  names: {
    ...gpt2Names,
    qkv: ['attn.attention.q_proj', 'attn.attention.k_proj', 'attn.attention.v_proj'],
    out: 'attn.attention.out_proj',
    ignored: /\.attn\.attention\.(masked_)?bias$/,
  },
  loraTargets: ['q_proj', 'v_proj'],
};

/** `[[["global", "local"], 12]]` → the kind of each layer. `attention_layers` repeats the result in saved configs. */
function attentionLayers(config: ConfigReader, layers: number): string[] {
  const types = config.optional('attention_types') ?? [[['global', 'local'], 12]];
  const expanded: string[] = [];
  for (const item of Array.isArray(types) ? types : [types]) {
    const [kinds, times] = Array.isArray(item) ? item : [];
    if (!Array.isArray(kinds) || !Number.isSafeInteger(times)) {
      config.fail('attention_types', `must look like [[["global", "local"], 12]], not ${JSON.stringify(types)}`);
    }
    for (let i = 0; i < times; i++) expanded.push(...kinds);
  }
  const other = expanded.find((kind) => kind !== 'global' && kind !== 'local');
  if (other !== undefined)
    config.fail('attention_types', `holds ${JSON.stringify(other)}: "global" and "local" are known`);
  if (expanded.length !== layers) {
    config.fail('attention_types', `describes ${expanded.length} layers, but num_layers is ${layers}`);
  }
  const saved = config.optional('attention_layers');
  if (saved !== null && JSON.stringify(saved) !== JSON.stringify(expanded)) {
    config.fail('attention_layers', `is ${JSON.stringify(saved)}, which is not what attention_types gives`);
  }
  return expanded;
}
