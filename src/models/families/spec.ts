/**
 * The description that a decoder is built from. A family reads a Hugging Face config.json into it and says how its weights are
 * named; the decoder itself knows no family.
 */

export type Activation = 'silu' | 'gelu' | 'gelu_tanh' | 'quick_gelu' | 'relu' | 'relu2' | 'tanh';

export type RopeScaling =
  | { kind: 'linear'; factor: number }
  | { kind: 'dynamic'; factor: number; originalMax: number }
  | { kind: 'llama3'; factor: number; lowFrequencyFactor: number; highFrequencyFactor: number; originalMax: number }
  | {
      kind: 'yarn';
      factor: number;
      originalMax: number;
      betaFast: number;
      betaSlow: number;
      attentionFactor: number;
      truncate: boolean;
    };

export type Positions =
  | {
      kind: 'rope';
      theta: number;
      /** How many of a head's dimensions are rotated; the others are unchanged. */
      rotaryDim: number;
      /** Rotates neighbouring pairs (GPT-J) instead of two halves. */
      interleaved: boolean;
      /**
       * The divisor of the frequencies' exponents if it is not rotaryDim: an odd share of a head is rounded up to
       * rotaryDim.
       */
      exponentDim?: number;
      scaling?: RopeScaling;
    }
  | { kind: 'learned'; count: number }
  /**
   * `scale·slope·key position` is added to the scaled scores (alibi.ts). BLOOM: scale 1. Falcon: scale 1/√headDim, and the
   * slope and its product with the position are rounded to bfloat16 whatever the model's dtype.
   */
  | { kind: 'alibi'; scale: number; bfloat16: boolean }
  | { kind: 'none' };

export interface NormSpec {
  kind: 'rms' | 'layer';
  eps: number;
  bias: boolean;
}

export interface AttentionSpec {
  heads: number;
  kvHeads: number;
  headDim: number;
  /** 1/√headDim for most; 1 for GPT-Neo. */
  scale: number;
  /** Divides the scale by the layer's number (GPT-2's scale_attn_by_inverse_layer_idx). */
  scaleByLayer: boolean;
  /**
   * Rows of the fused projection: `blocked` = all q, then all k, then all v; `grouped` = for each kv head its q heads, its
   * k and its v (GPT-NeoX, BLOOM, Falcon's new decoder).
   */
  layout: 'blocked' | 'grouped';
  qkvBias: boolean;
  outBias: boolean;
  /** RMS norm of q and k: over each head (Qwen3) or over all heads at once (OLMo-2). */
  qkNorm?: { over: 'head' | 'all'; eps: number };
  /** Per layer: how many tokens back a query sees, itself included; null = all. */
  windows: (number | null)[];
  dropout: number;
}

export interface MlpSpec {
  size: number;
  /** act(gate)·up → down, instead of act(up) → down. */
  gated: boolean;
  activation: Activation;
  bias: boolean;
}

/** Everything that defines a decoder: sizes, positions, norms, attention and MLP. */
export interface DecoderSpec {
  family: string;
  vocabSize: number;
  hiddenSize: number;
  layers: number;
  maxPositions: number;
  positions: Positions;
  norm: NormSpec;
  /** A norm right after the embedding (BLOOM). */
  embeddingNorm: boolean;
  /**
   * `pre`: x + f(norm(x)). `post`: x + norm(f(x)) (OLMo-2). `pre-residual`: BLOOM's and Falcon's option in which the
   * residual is the normed input: n + f(n).
   */
  normPlace: 'pre' | 'post' | 'pre-residual';
  /** Attention and MLP read the same input and are summed: with one shared norm, or a norm each. */
  parallel: false | 'one-norm' | 'two-norms';
  attention: AttentionSpec;
  mlp: MlpSpec;
  /** The language-model head uses the embedding's weight. */
  tied: boolean;
  headBias: boolean;
  /** `attentionOutput` is set if attention's output has its own rate (Falcon without parallel attention). */
  dropout: { embedding: number; residual: number; attentionOutput?: number };
  initializerRange: number;
}

/** Weight names in Hugging Face checkpoints; names within a layer are relative to `layer(i)`. */
export interface WeightNames {
  /** The prefix of the base model's weights; headless checkpoints leave it out. */
  basePrefix: string;
  embedding: string;
  positions?: string;
  embeddingNorm?: string;
  layer: (index: number) => string;
  attentionNorm?: string;
  mlpNorm?: string;
  /** Separate projections, or one name when the family fuses them. */
  qkv: [q: string, k: string, v: string] | [fused: string];
  out: string;
  qNorm?: string;
  kNorm?: string;
  /** Gated: [gate, up]; plain: [up]. */
  up: [gate: string, up: string] | [up: string];
  down: string;
  finalNorm: string;
  head: string;
  /** GPT-2's Conv1D keeps its matrices as [in, out]. */
  transposed: boolean;
  /** Tensors of old checkpoints that are not weights (masks, rope tables): accepted and ignored. */
  ignored?: RegExp;
}

export interface Family {
  /** The `model_type` of its config.json. */
  modelType: string;
  /** The `architectures` entry of a causal LM, a sequence classifier and a token classifier. */
  architectures: { causal: string; sequence?: string; token?: string };
  /** The name of the token classifier's head; `score` by default, as in all sequence classifiers. */
  tokenHead?: string;
  spec: (config: ConfigReader) => DecoderSpec;
  names: WeightNames | ((spec: DecoderSpec) => WeightNames);
  /** LoRA's default target modules. */
  loraTargets: string[];
  /** Other names of a field (transformers' attribute_map and names of older configs): canonical name → others. */
  aliases?: Record<string, string[]>;
}

/** Reads a config.json strictly (reader.ts): wrong types and unsupported values are refused, and the fields read are recorded. */
export interface ConfigReader {
  /** Where the config came from, for messages. */
  readonly source: string;
  int(name: string, fallback?: number): number;
  /** An integer above zero. */
  size(name: string, fallback?: number): number;
  /** As `size`, for fields in which null has a meaning; an absent field gives `absent`. */
  sizeOrNull(name: string, absent: number | null): number | null;
  number(name: string, fallback?: number): number;
  bool(name: string, fallback?: boolean): boolean;
  string(name: string, fallback?: string): string;
  optional<T = unknown>(name: string): T | null;
  /** The field must have one of these values (or be absent); anything else is refused with the reason. */
  only(name: string, values: readonly unknown[], why: string): void;
  activation(name: string, fallback: string): Activation;
  /** Rope in transformers' dialects 4 (`rope_theta`, `rope_scaling`) and 5 (`rope_parameters`). */
  rope(options: RopeOptions): { theta: number; rotaryDim: number; exponentDim?: number; scaling?: RopeScaling };
  fail(name: string, message: string): never;
}

export interface RopeOptions {
  headDim: number;
  maxPositions: number;
  thetaDefault?: number;
  thetaField?: string;
  /** For families that rotate a share of the head (GPT-NeoX): the old name of that share and its default. */
  partial?: { field: string; fallback: number };
}
