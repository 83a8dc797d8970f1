/**
 * llama.cpp's names for our families, and what it computes for them. A model with a feature that llama.cpp's version of
 * the family lacks is refused, with the feature's name: the file would load and give wrong results.
 */
import { UserError } from '../../../errors.ts';
import type { Activation, DecoderSpec } from '../../families/spec.ts';

export interface Architecture {
  /** `general.architecture`, and the prefix of its keys. */
  name: string;
  /**
   * llama.cpp rotates neighbouring dimensions of q and k, the checkpoint rotates two halves: their rows are reordered.
   */
  interleavedRope: boolean;
  /** q, k and v in one tensor. */
  fusedQkv: boolean;
  /** Tensors that llama.cpp requires even if the model has none: the head of a tied model, attention's biases. */
  needsHead: boolean;
  needsBiases: boolean;
  activation: readonly Activation[];
  /** The tensor names of the two norms; OLMo-2's come after attention and MLP. */
  attentionNorm: string;
  mlpNorm: string;
  /** Other reasons to refuse a model: each returns a reason, or false if it does not apply. */
  refuse: readonly ((spec: DecoderSpec) => string | false)[];
}

const llamaLike = {
  interleavedRope: false,
  fusedQkv: false,
  needsHead: false,
  needsBiases: false,
  activation: ['silu'],
  attentionNorm: 'attn_norm',
  mlpNorm: 'ffn_norm',
  refuse: [],
} satisfies Partial<Architecture>;

/** ggml's gelu is the tanh approximation; the exact one differs from it by less than 0.0005. */
const gelu = ['gelu', 'gelu_tanh'] as const;
const classic = { ...llamaLike, fusedQkv: true, needsBiases: true, activation: gelu };

const noOutBias = ({ attention }: DecoderSpec) => attention.outBias && 'attention with a bias on its output';
const ownHeadSize = ({ attention, hiddenSize }: DecoderSpec) =>
  attention.heads * attention.headDim !== hiddenSize && 'heads whose sizes do not add up to the hidden size';

const architectures: Record<string, Architecture> = {
  llama: { ...llamaLike, name: 'llama', interleavedRope: true },
  mistral: { ...llamaLike, name: 'llama', interleavedRope: true },
  qwen2: { ...llamaLike, name: 'qwen2', refuse: [ownHeadSize] },
  qwen3: { ...llamaLike, name: 'qwen3', refuse: [noOutBias] },
  olmo2: {
    ...llamaLike,
    name: 'olmo2',
    needsHead: true,
    attentionNorm: 'post_attention_norm',
    mlpNorm: 'post_ffw_norm',
    refuse: [noOutBias, ownHeadSize],
  },
  gpt2: {
    ...classic,
    name: 'gpt2',
    refuse: [
      ({ attention }) => attention.scaleByLayer && 'attention scaled by the layer (scale_attn_by_inverse_layer_idx)',
      ({ attention }) => attention.scale !== attention.headDim ** -0.5 && 'attention without a scale',
    ],
  },
  gpt_neox: {
    ...classic,
    name: 'gptneox',
    needsHead: true,
    refuse: [
      ({ positions }) =>
        positions.kind === 'rope' && positions.exponentDim !== undefined && 'an odd share of a head that turns',
    ],
  },
  bloom: {
    ...classic,
    name: 'bloom',
    refuse: [({ normPlace }) => normPlace !== 'pre' && 'a residual that is the normed input'],
  },
  falcon: {
    ...classic,
    name: 'falcon',
    needsBiases: false,
    refuse: [
      ({ positions }) => positions.kind !== 'rope' && 'ALiBi',
      ({ parallel }) => parallel === false && 'attention and MLP one after the other',
      ({ attention }) => attention.qkvBias && 'biases',
    ],
  },
};

/** The architecture of a model. Refuses one that llama.cpp does not support, with the reason. */
export function architectureOf(spec: DecoderSpec, source: string): Architecture {
  const found = architectures[spec.family];
  if (found === undefined)
    throw new UserError(
      `${source}: llama.cpp does not run models of the family "${spec.family}", so that there is no GGUF of them. ` +
        `It runs ${Object.keys(architectures).join(', ')}.`,
    );
  const reason = found.refuse.map((check) => check(spec)).find((text) => text !== false) ?? otherReasons(spec, found);
  if (reason !== false)
    throw new UserError(`${source}: llama.cpp's ${found.name} does not know ${reason}, which this model has.`);
  return found;
}

function otherReasons(spec: DecoderSpec, { name, activation }: Architecture): string | false {
  const { mlp, headBias, positions } = spec;
  if (!activation.includes(mlp.activation)) return `the activation ${mlp.activation}`;
  if (headBias) return 'a bias on the head';
  if (positions.kind !== 'rope' || positions.scaling === undefined) return false;
  const { scaling } = positions;
  if (scaling.kind === 'dynamic') return 'dynamic rope scaling';
  if (scaling.kind === 'llama3' && name !== 'llama') return "Llama 3's rope scaling";
  if (scaling.kind === 'yarn' && !scaling.truncate) return 'YaRN without whole dimensions (truncate: false)';
  return false;
}
