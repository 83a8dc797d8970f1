/**
 * The short ways through a block while decoding: all of it in one native call where it is the commonest block
 * (native/decode_layer.cc), or its attention from the fused projection on (native/decode_fused.cc).
 */
import { aten, type Tensor } from '../tensor/index.ts';
import type { Decoder } from './decoder.ts';
import type { KvCache } from './kv-cache.ts';
import type { Layer, Pass } from './layer.ts';

/** What the layers of one step share. */
export interface DecodeStep {
  decoder: Decoder;
  cache: KvCache;
  rope: Pass['rope'];
  positions: Tensor;
  slots: Tensor;
}

/** Whether the native block takes a step of these rows at all; whether it takes a certain layer is said by `isPlain`. */
export function layersFit(decoder: Decoder, x: Tensor): boolean {
  const { attention, hiddenSize, mlp, normPlace, parallel, norm } = decoder.spec;
  const plain =
    normPlace === 'pre' && parallel === false && norm.kind === 'rms' && mlp.gated && mlp.activation === 'silu';
  const { heads, kvHeads, headDim } = attention;
  const widths = [hiddenSize, mlp.size, heads * headDim, kvHeads * headDim];
  return plain && attentionFits(decoder, x) && aten<boolean>('attune::decode_layer_fits', x, widths);
}

/** A layer whose projections are plain matrices: no adapter, nothing quantised. */
export function isPlain(layer: Layer): boolean {
  const { attentionNorm, mlpNorm } = layer.weights;
  if (attentionNorm?.eps === undefined || attentionNorm.eps !== mlpNorm?.eps) return false;
  return layer.projections.every(({ adapter, quantised }) => adapter === null && quantised === null);
}

/** Takes `x` through a layer, in place. */
export function decodeLayer(layer: Layer, x: Tensor, step: DecodeStep): void {
  const { attentionNorm, mlpNorm, qkv, out, up, down } = layer.weights;
  aten(
    'attune::decode_layer',
    x,
    attentionNorm?.eps,
    attentionNorm?.weight,
    qkv.weight,
    qkv.bias,
    ...attentionArguments(layer, step),
    out.weight,
    out.bias,
    mlpNorm?.weight,
    up.weight,
    up.bias,
    down.weight,
    down.bias,
  );
}

/** Whether norm, turn, cache and attention of this decoder are what native/decode_fused.cc does. */
export function attentionFits(decoder: Decoder, x: Tensor): boolean {
  const { attention, positions } = decoder.spec;
  const plain = attention.layout === 'blocked' && positions.kind !== 'alibi' && attention.qkNorm?.over !== 'all';
  return plain && aten<boolean>('attune::decode_fused_fits', x, attention.headDim);
}

/** [rows, heads, headDim] of a layer's fused projection. */
export function attendFused(layer: Layer, qkv: Tensor, step: DecodeStep): Tensor {
  return aten('attune::decode_fused', qkv, ...attentionArguments(layer, step));
}

function attentionArguments(layer: Layer, { decoder, cache, rope, positions, slots }: DecodeStep): unknown[] {
  const { qNorm, kNorm } = layer.weights;
  const { heads, windows } = decoder.spec.attention;
  return [
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
  ];
}
