/** GPT-J (Wang and Komatsuzaki 2021): rope on neighbouring pairs, attention and MLP side by side, a bias on the head. */
import type { Family } from '../spec.ts';
import { headSize, unlimited } from './heads.ts';

export const gptj: Family = {
  modelType: 'gptj',
  architectures: { causal: 'GPTJForCausalLM', sequence: 'GPTJForSequenceClassification' },
  aliases: {
    n_embd: ['hidden_size'],
    n_positions: ['max_position_embeddings'],
    n_head: ['num_attention_heads'],
    n_layer: ['num_hidden_layers'],
  },
  spec(config) {
    const hiddenSize = config.size('n_embd', 4096);
    const layers = config.size('n_layer', 28);
    const heads = config.size('n_head', 16);
    const headDim = headSize(config, heads, hiddenSize);
    // null: the whole head turns.
    const rotaryDim = config.sizeOrNull('rotary_dim', 64) ?? headDim;
    if (rotaryDim > headDim || rotaryDim % 2 !== 0) {
      config.fail('rotary_dim', `is ${rotaryDim}: must be even and at most the size of a head (${headDim})`);
    }
    for (const name of ['rotary', 'rope_scaling', 'rope_parameters']) {
      config.only(name, [true, null], 'GPT-J always turns by its plain rope');
    }
    return {
      family: 'gptj',
      vocabSize: config.size('vocab_size', 50400),
      hiddenSize,
      layers,
      maxPositions: config.size('n_positions', 2048),
      positions: { kind: 'rope', theta: 10_000, rotaryDim, interleaved: true },
      norm: { kind: 'layer', eps: config.number('layer_norm_epsilon', 1e-5), bias: true },
      embeddingNorm: false,
      normPlace: 'pre',
      parallel: 'one-norm',
      attention: {
        heads,
        kvHeads: heads,
        headDim,
        scale: headDim ** -0.5,
        scaleByLayer: false,
        layout: 'blocked',
        qkvBias: false,
        outBias: false,
        windows: unlimited(layers),
        dropout: config.number('attn_pdrop', 0),
      },
      mlp: {
        size: config.sizeOrNull('n_inner', null) ?? 4 * hiddenSize,
        gated: false,
        activation: config.activation('activation_function', 'gelu_new'),
        bias: true,
      },
      tied: config.bool('tie_word_embeddings', false),
      headBias: true,
      dropout: { embedding: config.number('embd_pdrop', 0), residual: config.number('resid_pdrop', 0) },
      initializerRange: config.number('initializer_range', 0.02),
    };
  },
  names: {
    basePrefix: 'transformer',
    embedding: 'transformer.wte',
    layer: (index) => `transformer.h.${index}`,
    attentionNorm: 'ln_1',
    qkv: ['attn.q_proj', 'attn.k_proj', 'attn.v_proj'],
    out: 'attn.out_proj',
    up: ['mlp.fc_in'],
    down: 'mlp.fc_out',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    transposed: false,
    ignored: /\.attn\.((masked_)?bias|embed_positions)$/,
  },
  loraTargets: ['q_proj', 'v_proj'],
};
