/**
 * The short ways through a step of decoding: all its blocks in one native call where they are the commonest block
 * (native/ops/decode_layer.cc), or a block's attention from the fused projection on (native/ops/decode_fused.cc).
 */
import { aten, type Tensor } from '../../tensor/index.ts';
import type { Decoder } from '../decoder/decoder.ts';
import type { Layer, LayerWeights, Pass } from '../decoder/layer.ts';
import type { KvCache } from './cache.ts';

/** What the layers of one step share. */
export interface DecodeStep {
  decoder: Decoder;
  cache: KvCache;
  positions: Tensor;
  slots: Tensor;
}

/** Whether the native blocks take a step of these rows. */
export function layersFit(decoder: Decoder, x: Tensor): boolean {
  const { attention, hiddenSize, mlp, normPlace, parallel, norm } = decoder.spec;
  const plain =
    normPlace === 'pre' && parallel === false && norm.kind === 'rms' && mlp.gated && mlp.activation === 'silu';
  if (!plain || !attentionFits(decoder, x) || !decoder.layers.every(isPlain)) return false;
  const { heads, kvHeads, headDim } = attention;
  return aten<boolean>('attune::decode_layers_fit', x, [hiddenSize, mlp.size, heads * headDim, kvHeads * headDim]);
}

/** A layer whose projections are plain matrices: no adapter, nothing quantised. */
function isPlain(layer: Layer): boolean {
  const { attentionNorm, mlpNorm } = layer.weights;
  if (attentionNorm?.eps === undefined || attentionNorm.eps !== mlpNorm?.eps) return false;
  return layer.projections.every(({ adapter, quantised }) => adapter === null && quantised === null);
}

/** Takes `x` through `layers`, in place. */
export function decodeLayers(layers: readonly Layer[], x: Tensor, step: DecodeStep): void {
  const { before, after } = layerArguments(layers, step.decoder, step.cache);
  aten('attune::decode_layers', x, ...before, step.slots, step.positions, ...after);
}

/** What native/ops/decode_layer.cc is told of the layers, before and after a step's slots and positions. */
export function layerArguments(
  layers: readonly Layer[],
  decoder: Decoder,
  cache: KvCache,
): { before: unknown[]; after: unknown[] } {
  const { attention, positions: kind } = decoder.spec;
  const rope = kind.kind === 'rope' ? decoder.ropeUpTo(cache.length) : null;
  const first = layers[0]?.weights;
  const each = <T>(pick: (weights: LayerWeights, index: number) => T) =>
    layers.map((layer) => pick(layer.weights, layer.index));
  return {
    before: [
      first?.attentionNorm?.eps ?? 0,
      each(({ attentionNorm }) => attentionNorm?.weight),
      each(({ qkv }) => qkv.weight),
      each(({ qkv }) => qkv.bias),
      each(({ qNorm }) => qNorm?.weight ?? null),
      each(({ kNorm }) => kNorm?.weight ?? null),
      first?.qNorm?.eps ?? 0,
      rope?.cos ?? null,
      rope?.sin ?? null,
      kind.kind === 'rope' && kind.interleaved,
      each((_, index) => cache.keys[index]),
      each((_, index) => cache.values[index]),
    ],
    after: [
      attention.heads,
      each((_, index) => decoder.attentionScale(index)),
      each((_, index) => attention.windows[index] ?? 0),
      each(({ out }) => out.weight),
      each(({ out }) => out.bias),
      each(({ mlpNorm }) => mlpNorm?.weight),
      each(({ up }) => up.weight),
      each(({ up }) => up.bias),
      each(({ down }) => down.weight),
      each(({ down }) => down.bias),
    ],
  };
}

/** Whether norm, turn, cache and attention of this decoder are what native/ops/decode_fused.cc does. */
export function attentionFits(decoder: Decoder, x: Tensor): boolean {
  const { attention, positions } = decoder.spec;
  const plain = attention.layout === 'blocked' && positions.kind !== 'alibi' && attention.qkNorm?.over !== 'all';
  return plain && aten<boolean>('attune::decode_fused_fits', x, attention.headDim);
}

/** [rows, heads, headDim] of a layer's fused projection. */
export function attendFused(layer: Layer, qkv: Tensor, rope: Pass['rope'], step: DecodeStep): Tensor {
  const { decoder, cache, positions, slots } = step;
  const { qNorm, kNorm } = layer.weights;
  const { heads, windows } = decoder.spec.attention;
  return aten(
    'attune::decode_fused',
    qkv,
    qNorm?.weight ?? null,
    kNorm?.weight ?? null,
    qNorm?.eps ?? 0,
    rope?.cos ?? null,
    rope?.sin ?? null,
    rope?.interleaved ?? false,
    cache.keys[layer.index],
    cache.values[layer.index],
    slots,
    positions,
    heads,
    decoder.attentionScale(layer.index),
    windows[layer.index] ?? 0,
  );
}
