/** GPT-J (Wang and Komatsuzaki 2021): rope on neighbouring pairs, attention and MLP in parallel, a bias on the head. */

import { classic, gptAliases, gptNames } from './classic.ts';
import { headSize } from './heads.ts';
import type { Family } from './spec.ts';

export const gptj: Family = {
  modelType: 'gptj',
  architectures: { causal: 'GPTJForCausalLM', sequence: 'GPTJForSequenceClassification' },
  aliases: gptAliases,
  spec(config) {
    const hiddenSize = config.size('n_embd', 4096);
    const layers = config.size('n_layer', 28);
    const heads = config.size('n_head', 16);
    const headDim = headSize(config, heads, hiddenSize);
    // null: the whole head is rotated.
    const rotaryDim = config.sizeOrNull('rotary_dim', 64) ?? headDim;
    if (rotaryDim > headDim || rotaryDim % 2 !== 0) {
      config.fail('rotary_dim', `is ${rotaryDim}: must be even and at most the size of a head (${headDim})`);
    }
    for (const name of ['rotary', 'rope_scaling', 'rope_parameters']) {
      config.only(name, [true, null], 'GPT-J always turns by its plain rope');
    }
    const spec = classic(config, {
      family: 'gptj',
      vocabSize: config.size('vocab_size', 50400),
      hiddenSize,
      layers,
      heads,
      headDim,
      maxPositions: config.size('n_positions', 2048),
      positions: { kind: 'rope', theta: 10_000, rotaryDim, interleaved: true },
      eps: config.number('layer_norm_epsilon', 1e-5),
      mlp: {
        size: config.sizeOrNull('n_inner', null) ?? 4 * hiddenSize,
        activation: config.activation('activation_function', 'gelu_new'),
      },
      tied: config.bool('tie_word_embeddings', false),
    });
    return {
      ...spec,
      parallel: 'one-norm',
      attention: { ...spec.attention, qkvBias: false, outBias: false, dropout: config.number('attn_pdrop', 0) },
      headBias: true,
      dropout: { embedding: config.number('embd_pdrop', 0), residual: config.number('resid_pdrop', 0) },
    };
  },
  names: {
    ...gptNames,
    qkv: ['attn.q_proj', 'attn.k_proj', 'attn.v_proj'],
    out: 'attn.out_proj',
    up: ['mlp.fc_in'],
    down: 'mlp.fc_out',
    ignored: /\.attn\.((masked_)?bias|embed_positions)$/,
  },
  loraTargets: ['q_proj', 'v_proj'],
};
