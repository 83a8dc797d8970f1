/**
 * A Hugging Face folder into a Decoder, and a Decoder with fresh random weights out of a config alone.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { QuantisedMatrix, type QuantType } from '../../nn/index.ts';
import { sameKind } from '../../nn/quantised.ts';
import { type Checkpoint, cat, type Device, type DType, keep, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import { Decoder } from '../decoder/decoder.ts';
import { Layer } from '../decoder/layer.ts';
import type { Norm } from '../decoder/norm.ts';
import { Projection, type ProjectionPart } from '../decoder/projection.ts';
import { familyOf } from '../families/index.ts';
import type { DecoderSpec, WeightNames } from '../families/spec.ts';
import { configQuantType } from './bitsandbytes.ts';
import { CheckpointSource, InitialSource, type WeightSource } from './source.ts';

/** The dtype, device and quantisation to load a model with. */
export interface LoadOptions {
  dtype?: DType;
  device?: Device;
  /**
   * Holds the blocks' matrices in 8 or 4 bits, frozen: for references, reward models and the base of adapters. Embeddings, the
   * heads and the norms stay as they are. Each matrix is quantised as it is read, so that the whole never lies there plain. A
   * checkpoint that is quantised already stays as it is, whether this is said or not.
   */
  quantType?: QuantType;
}

/** Reads a model folder's config.json. */
export function readConfig(folder: string): Record<string, unknown> {
  const path = join(folder, 'config.json');
  if (!existsSync(path)) throw new UserError(`${folder}: there is no config.json; this is not a model folder.`);
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
  } catch (error) {
    throw new UserError(`${path}: not valid JSON (${(error as Error).message}).`);
  }
}

/** The dtype that a config names, under its old or new key. */
export function configDtype(config: Record<string, unknown>): DType {
  const named = config.dtype ?? config.torch_dtype;
  return named === 'bfloat16' || named === 'float16' ? named : 'float32';
}

/** The decoder of an open checkpoint. A checkpoint with a head of another kind may lack the language model's. */
export function readDecoder(
  checkpoint: Checkpoint,
  config: Record<string, unknown>,
  folder: string,
  options: LoadOptions = {},
): Decoder {
  const { spec, names } = familyOf(config, join(folder, 'config.json'));
  const { dtype = configDtype(config), device = 'cpu', quantType } = options;
  const source = new CheckpointSource(checkpoint, names, folder, { dtype, device }, configQuantType(config));
  if (quantType !== undefined && source.quantType !== null && quantType !== source.quantType)
    throw new UserError(
      `${folder}: its weights are ${source.quantType} already and cannot become ${quantType}: leave the choice out, or load the original.`,
    );
  const decoder = scope(() => noGrad(() => buildDecoder(spec, names, source, projections(source, quantType, device))));
  source.refuseLeftovers();
  return decoder;
}

/** Random weights: matrices N(0, initializerRange²), gains 1, biases 0, from the seeded generator. */
export function initDecoder(config: Record<string, unknown>, source: string, options: LoadOptions = {}): Decoder {
  const { spec, names } = familyOf(config, source);
  const { dtype = configDtype(config), device = 'cpu', quantType } = options;
  const weights = new InitialSource(spec, { dtype, device });
  return scope(() => noGrad(() => buildDecoder(spec, names, weights, projections(weights, quantType, device))));
}

type MakeProjection = (parts: ProjectionPart[], inputs: number, bias: boolean) => Projection;

/** Of a source's matrices. What is read on the way is gone when it is made: a checkpoint passes one matrix at a time. */
function projections(source: WeightSource, quantType: QuantType | undefined, device: Device): MakeProjection {
  const matrixOf = (parts: ProjectionPart[], inputs: number) => {
    const named = parts.map(({ name, outputs }) => [`${name}.weight`, [outputs, inputs]] as const);
    if (named.every(([name]) => source.isQuantised(name))) {
      const stored = named.map(([name, shape]) => source.quantised(name, shape));
      if (sameKind(stored)) return QuantisedMatrix.join(stored, device);
    }
    // where a file quantises some of the matrices that are held as one and leaves others, all are held plain
    if (quantType === undefined || source.quantType !== null)
      return joined(named.map(([name, shape]) => source.get(name, shape, 'matrix')));
    const plain = named.map(([name, shape]) => source.stored(name, shape));
    return QuantisedMatrix.of(plain, quantType, device);
  };
  return (parts, inputs, bias) =>
    scope(() => {
      const biases = bias ? parts.map(({ name, outputs }) => source.get(`${name}.bias`, [outputs], 'bias')) : null;
      return new Projection(parts, matrixOf(parts, inputs), biases === null ? null : joined(biases));
    });
}

function buildDecoder(
  spec: DecoderSpec,
  names: WeightNames,
  source: WeightSource,
  projection: MakeProjection,
): Decoder {
  const { hiddenSize: hidden, vocabSize } = spec;
  const weight = (name: string, shape: number[]) => keep(source.get(`${name}.weight`, shape, 'matrix'));
  const norm = (name: string, size: number, kind = spec.norm): Norm => ({
    name,
    kind: kind.kind,
    eps: kind.eps,
    weight: keep(source.get(`${name}.weight`, [size], 'gain')),
    bias: kind.bias ? keep(source.get(`${name}.bias`, [size], 'bias')) : null,
  });
  const layers = Array.from({ length: spec.layers }, (_, i) => buildLayer(i, spec, names, projection, norm));
  return new Decoder(spec, {
    embedding: { name: `${names.embedding}.weight`, weight: weight(names.embedding, [vocabSize, hidden]) },
    positions:
      spec.positions.kind === 'learned' && names.positions !== undefined
        ? { name: `${names.positions}.weight`, weight: weight(names.positions, [spec.positions.count, hidden]) }
        : null,
    embeddingNorm: spec.embeddingNorm && names.embeddingNorm !== undefined ? norm(names.embeddingNorm, hidden) : null,
    layers,
    finalNorm: norm(names.finalNorm, hidden),
    lm: spec.tied || source.hasHead,
    head:
      (spec.tied && !spec.headBias) || !source.hasHead
        ? null
        : {
            name: names.head,
            weight: spec.tied ? null : weight(names.head, [vocabSize, hidden]),
            bias: spec.headBias ? keep(source.get(`${names.head}.bias`, [vocabSize], 'bias')) : null,
          },
  });
}

type MakeNorm = (name: string, size: number, kind?: DecoderSpec['norm']) => Norm;

function buildLayer(
  index: number,
  spec: DecoderSpec,
  names: WeightNames,
  projection: MakeProjection,
  norm: MakeNorm,
): Layer {
  const { hiddenSize: hidden, attention, mlp } = spec;
  const { heads, kvHeads, headDim, qkNorm } = attention;
  const path = (name: string) => `${names.layer(index)}.${name}`;
  const sizes = [heads * headDim, kvHeads * headDim, kvHeads * headDim];
  const qkv =
    names.qkv.length === 1
      ? [{ name: path(names.qkv[0]), outputs: sizes.reduce((a, b) => a + b) }]
      : names.qkv.map((name, i) => ({ name: path(name), outputs: sizes[i] as number }));
  const headNorm = { kind: 'rms', eps: qkNorm?.eps ?? 0, bias: false } as const;
  const qkNormSizes = qkNorm?.over === 'head' ? [headDim, headDim] : [heads * headDim, kvHeads * headDim];
  return new Layer(index, spec, {
    attentionNorm: names.attentionNorm === undefined ? null : norm(path(names.attentionNorm), hidden),
    mlpNorm: names.mlpNorm === undefined ? null : norm(path(names.mlpNorm), hidden),
    qkv: projection(qkv, hidden, attention.qkvBias),
    qNorm: qkNorm && names.qNorm ? norm(path(names.qNorm), qkNormSizes[0] as number, headNorm) : null,
    kNorm: qkNorm && names.kNorm ? norm(path(names.kNorm), qkNormSizes[1] as number, headNorm) : null,
    out: projection([{ name: path(names.out), outputs: hidden }], heads * headDim, attention.outBias),
    up: projection(
      names.up.map((name) => ({ name: path(name), outputs: mlp.size })),
      hidden,
      mlp.bias,
    ),
    down: projection([{ name: path(names.down), outputs: hidden }], mlp.size, mlp.bias),
  });
}

function joined(tensors: Tensor[]): Tensor {
  return tensors.length === 1 ? (tensors[0] as Tensor) : cat(tensors);
}
