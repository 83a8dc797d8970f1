/** A model's shape as llama.cpp's metadata keys. */
import { ropeFrequencies } from '../../decoder/rope.ts';
import type { DecoderSpec, Positions } from '../../families/spec.ts';
import type { Architecture } from './architecture.ts';
import { bool, float32, type Metadata, string, uint32 } from './format.ts';

export function hyperparameters(spec: DecoderSpec, architecture: Architecture): Metadata {
  const { attention, mlp, norm, positions } = spec;
  const key = (name: string) => `${architecture.name}.${name}`;
  const epsilon = norm.kind === 'rms' ? 'layer_norm_rms_epsilon' : 'layer_norm_epsilon';
  const pairs: Metadata = new Map([
    [key('context_length'), uint32(contextTokens(spec))],
    [key('embedding_length'), uint32(spec.hiddenSize)],
    [key('block_count'), uint32(spec.layers)],
    [key('feed_forward_length'), uint32(mlp.size)],
    [key('attention.head_count'), uint32(attention.heads)],
    [key('attention.head_count_kv'), uint32(attention.kvHeads)],
    [key('attention.key_length'), uint32(attention.headDim)],
    [key('attention.value_length'), uint32(attention.headDim)],
    [key(`attention.${epsilon}`), float32(norm.eps)],
    [key('vocab_size'), uint32(spec.vocabSize)],
  ]);
  if (spec.family === 'gpt_neox') pairs.set(key('use_parallel_residual'), bool(spec.parallel !== false));
  if (positions.kind === 'rope') for (const [name, value] of rope(positions)) pairs.set(key(name), value);
  return pairs;
}

/**
 * The context length. llama.cpp has no sliding windows for these families, so the context ends where the shortest
 * window would matter.
 */
function contextTokens({ maxPositions, attention }: DecoderSpec): number {
  return Math.min(maxPositions, ...attention.windows.filter((window) => window !== null));
}

function rope(positions: Extract<Positions, { kind: 'rope' }>): Metadata {
  const { theta, rotaryDim, scaling } = positions;
  const pairs: Metadata = new Map([
    ['rope.dimension_count', uint32(rotaryDim)],
    ['rope.freq_base', float32(theta)],
  ]);
  if (scaling?.kind === 'linear') {
    pairs.set('rope.scaling.type', string('linear')).set('rope.scaling.factor', float32(scaling.factor));
  } else if (scaling?.kind === 'yarn') {
    // llama.cpp multiplies by 0.1·ln(factor) + 1 itself (YaRN, equation 22); the key holds the remaining factor.
    const usual = 1 + 0.1 * Math.log(scaling.factor);
    pairs
      .set('rope.scaling.type', string('yarn'))
      .set('rope.scaling.factor', float32(scaling.factor))
      .set('rope.scaling.original_context_length', uint32(scaling.originalMax))
      .set('rope.scaling.yarn_beta_fast', float32(scaling.betaFast))
      .set('rope.scaling.yarn_beta_slow', float32(scaling.betaSlow))
      .set('rope.scaling.attn_factor', float32(scaling.attentionFactor / usual));
  }
  return pairs;
}

/** Llama 3's rope scaling, which llama.cpp reads from a tensor: the divisor of each pair's frequency. */
export function ropeDivisors(spec: DecoderSpec): Float32Array | null {
  const { positions } = spec;
  if (positions.kind !== 'rope' || positions.scaling?.kind !== 'llama3') return null;
  const { scaling: _, ...plain } = positions;
  const scaled = ropeFrequencies(positions).inverseFrequencies;
  const unscaled = ropeFrequencies(plain).inverseFrequencies;
  return Float32Array.from(scaled, (frequency, i) => (unscaled[i] as number) / frequency);
}
