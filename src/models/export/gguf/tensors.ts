/** A decoder's weights under llama.cpp's names and in its row order, encoded piece by piece. */
import { keep, noGrad, scope, type Tensor, tensor, zeros } from '../../../tensor/index.ts';
import type { Decoder } from '../../decoder/decoder.ts';
import type { Layer } from '../../decoder/layer.ts';
import type { Norm } from '../../decoder/norm.ts';
import type { Projection } from '../../decoder/projection.ts';
import type { DecoderSpec } from '../../families/spec.ts';
import type { Architecture } from './architecture.ts';
import { encodeBlocks } from './blocks.ts';
import { layouts, type TensorType } from './format.ts';
import { ropeDivisors } from './hyperparameters.ts';
import type { TensorSource } from './writer.ts';

/** Values encoded at a time: bounds the memory needed beyond the model. */
const PIECE_VALUES = 2 ** 22;

interface Named {
  name: string;
  shape: readonly number[];
  /** Called when the tensor is written; its result is freed afterwards. */
  tensor: () => Tensor;
  type: TensorType;
}

/**
 * Every tensor of the file. Vectors stay f32, as llama.cpp requires; rows whose length is not a multiple of 32 are f16.
 */
export function ggufTensors(decoder: Decoder, architecture: Architecture, type: TensorType): TensorSource[] {
  return [...namedTensors(decoder, architecture, type)].map(({ tensor: make, ...info }) => ({
    ...info,
    *pieces() {
      const plain = scope(() =>
        noGrad(() => keep(make().detach().to({ dtype: 'float32', device: 'cpu' }).contiguous())),
      );
      try {
        yield* encoded(plain, info.type);
      } finally {
        plain.dispose();
      }
    },
  }));
}

function* encoded(plain: Tensor, type: TensorType): Iterable<Uint8Array> {
  const flat = plain.reshape(-1);
  const total = flat.numel;
  try {
    for (let start = 0; start < total; start += PIECE_VALUES) {
      const piece = scope(() => {
        const part = flat.narrow(0, start, Math.min(PIECE_VALUES, total - start));
        if (type === 'q8_0' || type === 'q4_0') return encodeBlocks(part.data() as Float32Array, type);
        const typed = type === 'f32' ? part : part.to(type === 'f16' ? 'float16' : 'bfloat16');
        const data = typed.data();
        return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      });
      yield piece;
    }
  } finally {
    flat.dispose();
  }
}

function* namedTensors(decoder: Decoder, architecture: Architecture, type: TensorType): Iterable<Named> {
  const { spec, weights } = decoder;
  const { embedding, positions, embeddingNorm, finalNorm, head } = weights;
  const { hiddenSize: hidden, vocabSize } = spec;
  // The head gets more bits (as with llama.cpp's own quantiser): its errors go straight into the logits.
  const headType = type === 'q4_0' ? 'q8_0' : type;
  const ownHead = head?.weight ?? null;
  const table = (name: string, weight: Tensor, of: TensorType) =>
    ({ name, shape: [vocabSize, hidden], tensor: () => weight, type: fitting(of, hidden) }) satisfies Named;
  yield table('token_embd.weight', embedding.weight, ownHead === null ? headType : type);
  if (positions !== null)
    yield { name: 'position_embd.weight', shape: positions.weight.shape, tensor: () => positions.weight, type: 'f32' };
  if (embeddingNorm !== null) yield* normTensors('token_embd_norm', embeddingNorm);
  for (const layer of decoder.layers) yield* layerTensors(layer, architecture, type);
  yield* normTensors('output_norm', finalNorm);
  if (ownHead !== null || architecture.needsHead) yield table('output.weight', ownHead ?? embedding.weight, headType);
  const divisors = ropeDivisors(spec);
  if (divisors !== null)
    yield { name: 'rope_freqs.weight', shape: [divisors.length], tensor: () => tensor(divisors), type: 'f32' };
}

function* normTensors(name: string, { weight, bias }: Norm): Iterable<Named> {
  yield { name: `${name}.weight`, shape: weight.shape, tensor: () => weight, type: 'f32' };
  if (bias !== null) yield { name: `${name}.bias`, shape: bias.shape, tensor: () => bias, type: 'f32' };
}

function* layerTensors(layer: Layer, architecture: Architecture, type: TensorType): Iterable<Named> {
  const { spec, weights } = layer;
  const at = (name: string) => `blk.${layer.index}.${name}`;
  // Falcon with two norms: llama.cpp uses the second for attention and the first for the MLP.
  const swapped = spec.family === 'falcon' && weights.mlpNorm !== null;
  const first = swapped ? 'attn_norm_2' : architecture.attentionNorm;
  const second = swapped ? 'attn_norm' : architecture.mlpNorm;
  if (weights.attentionNorm !== null) yield* normTensors(at(first), weights.attentionNorm);
  if (weights.mlpNorm !== null) yield* normTensors(at(second), weights.mlpNorm);
  if (weights.qNorm !== null) yield* normTensors(at('attn_q_norm'), weights.qNorm);
  if (weights.kNorm !== null) yield* normTensors(at('attn_k_norm'), weights.kNorm);
  yield* qkvTensors(weights.qkv, spec, architecture, at, type);
  yield* matrix(at('attn_output'), weights.out, [0, spec.hiddenSize], type);
  if (architecture.needsBiases) yield* biasOfZeros(at('attn_output'), weights.out);
  const { size, gated } = spec.mlp;
  if (gated) yield* matrix(at('ffn_gate'), weights.up, [0, size], type);
  yield* matrix(at('ffn_up'), weights.up, [gated ? size : 0, size], type);
  yield* matrix(at('ffn_down'), weights.down, [0, spec.hiddenSize], type);
}

function* qkvTensors(
  qkv: Projection,
  spec: DecoderSpec,
  architecture: Architecture,
  at: (name: string) => string,
  type: TensorType,
): Iterable<Named> {
  const { heads, kvHeads, headDim, layout } = spec.attention;
  const sizes = [heads * headDim, kvHeads * headDim, kvHeads * headDim] as const;
  const total = sizes[0] + sizes[1] + sizes[2];
  if (architecture.fusedQkv) {
    yield* matrix(at('attn_qkv'), qkv, [0, total], type, layout === 'grouped' ? ungrouped(spec) : null);
    if (architecture.needsBiases) yield* biasOfZeros(at('attn_qkv'), qkv);
    return;
  }
  let start = 0;
  for (const [i, name] of ['attn_q', 'attn_k', 'attn_v'].entries()) {
    const size = sizes[i] as number;
    const order = architecture.interleavedRope && i < 2 ? interleave(size / headDim, spec) : null;
    yield* matrix(at(name), qkv, [start, size], type, order);
    start += size;
  }
}

/** A bias of zeros, if the model has none. */
function* biasOfZeros(name: string, { bias, outputs }: Projection): Iterable<Named> {
  if (bias === null) yield { name: `${name}.bias`, shape: [outputs], tensor: () => zeros([outputs]), type: 'f32' };
}

/** A projection and its bias, with their rows in the given order, if any. */
function* matrix(
  name: string,
  projection: Projection,
  [start, count]: readonly [number, number],
  type: TensorType,
  order: Int32Array | null = null,
): Iterable<Named> {
  const { inputs, bias } = projection;
  const whole = () =>
    projection.weight ?? (projection.quantised as NonNullable<typeof projection.quantised>).dequantise();
  yield {
    name: `${name}.weight`,
    shape: [count, inputs],
    tensor: () => reordered(whole().narrow(0, start, count), order),
    type: fitting(type, inputs),
  };
  if (bias !== null)
    yield {
      name: `${name}.bias`,
      shape: [count],
      tensor: () => reordered(bias.narrow(0, start, count), order),
      type: 'f32',
    };
}

const fitting = (type: TensorType, columns: number): TensorType =>
  columns % layouts[type].blockValues === 0 ? type : 'f16';

function reordered(rows: Tensor, order: Int32Array | null): Tensor {
  return order === null ? rows : rows.indexSelect(0, tensor(order, { device: rows.device }));
}

/** Row order from two halves to neighbouring pairs: row 2i of a head was row i, row 2i + 1 was row i + half. */
function interleave(heads: number, { attention: { headDim } }: DecoderSpec): Int32Array {
  const half = headDim / 2;
  return Int32Array.from({ length: heads * headDim }, (_, row) => {
    const [head, within] = [Math.floor(row / headDim), row % headDim];
    return head * headDim + (within % 2) * half + Math.floor(within / 2);
  });
}

/** Row order from grouped (each group's q heads, k, v) to all q, then all k, then all v. */
function ungrouped({ attention: { heads, kvHeads, headDim } }: DecoderSpec): Int32Array {
  const queries = heads / kvHeads;
  const rows: number[] = [];
  const head = (index: number) => {
    for (let i = 0; i < headDim; i++) rows.push(index * headDim + i);
  };
  for (let group = 0; group < kvHeads; group++) for (let q = 0; q < queries; q++) head(group * (queries + 2) + q);
  for (const offset of [queries, queries + 1])
    for (let group = 0; group < kvHeads; group++) head(group * (queries + 2) + offset);
  return Int32Array.from(rows);
}
