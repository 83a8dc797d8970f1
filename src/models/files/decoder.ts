/**
 * Makes a Decoder from a Hugging Face folder, or from a config alone with random weights.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkArguments, oneOf, type Rule } from '../../arguments.ts';
import { UserError } from '../../errors.ts';
import { QuantisedMatrix, type QuantType, quantTypes } from '../../nn/index.ts';
import { sameKind } from '../../nn/quantised.ts';
import {
  type Checkpoint,
  cat,
  type Device,
  type DType,
  isDevice,
  isFloating,
  keep,
  noGrad,
  scope,
  type Tensor,
} from '../../tensor/index.ts';
import { Decoder } from '../decoder/decoder.ts';
import { Layer } from '../decoder/layer.ts';
import type { Norm } from '../decoder/norm.ts';
import { Projection, type ProjectionPart } from '../decoder/projection.ts';
import { familyOf } from '../families/index.ts';
import type { DecoderSpec, WeightNames } from '../families/spec.ts';
import { configQuantType } from './bitsandbytes.ts';
import { checkDevice } from './device.ts';
import { CheckpointSource, InitialSource, type WeightSource } from './source.ts';

/** The dtype, device and quantisation to load a model with. */
export interface LoadOptions {
  dtype?: DType;
  device?: Device;
  /**
   * Holds the blocks' matrices in 8 or 4 bits, frozen: for references, reward models and the base of adapters.
   * Embeddings, heads and norms are not quantised. Each matrix is quantised as it is read, so the unquantised model is
   * never whole in memory. A checkpoint that is already quantised stays quantised, with or without this option.
   */
  quantType?: QuantType;
}

/** Reads a model folder's config.json. */
export function readConfig(folder: string): Record<string, unknown> {
  const path = join(folder, 'config.json');
  if (!existsSync(path)) throw new UserError(`${folder}: there is no config.json; this is not a model folder.`);
  return readConfigFile(path);
}

/** Reads a config.json at any path. */
export function readConfigFile(path: string): Record<string, unknown> {
  const text = readFileSync(path, 'utf8');
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new UserError(`${path}: not valid JSON (${(error as Error).message}).`);
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config))
    throw new UserError(`${path}: not a JSON object; a model's config is expected.`);
  return config as Record<string, unknown>;
}

/** The dtype that a config names, under its old or new key. */
export function configDtype(config: Record<string, unknown>): DType {
  const named = config.dtype ?? config.torch_dtype;
  return named === 'bfloat16' || named === 'float16' ? named : 'float32';
}

/** The decoder of an open checkpoint. A checkpoint with a score head may lack a language-model head. */
export function readDecoder(
  checkpoint: Checkpoint,
  config: Record<string, unknown>,
  folder: string,
  options: LoadOptions = {},
): Decoder {
  const { spec, names } = familyOf(config, join(folder, 'config.json'));
  const { dtype = configDtype(config), device = 'cpu', quantType } = options;
  checkLoadOptions(options);
  const source = new CheckpointSource(checkpoint, names, folder, { dtype, device }, configQuantType(config));
  checkQuantType(folder, source.quantType, quantType);
  return freedOnError((made) => {
    const decoder = buildDecoder(spec, names, source, projections(source, quantType, device, made), made);
    source.refuseLeftovers();
    return decoder;
  });
}

/** Weights that are stored in 8 or 4 bits stay as they are: refuses a request for another type. */
export function checkQuantType(name: string, stored: QuantType | null, asked: QuantType | undefined): void {
  if (stored === null || asked === undefined || stored === asked) return;
  throw new UserError(
    `${name}: its weights are ${stored} already and cannot become ${asked}: leave the type out to use them as they are, or name the model that they were made from.`,
  );
}

const optionRules: Record<keyof LoadOptions, Rule> = {
  dtype: { fits: (value) => isFloating(value as DType), wanted: 'float32, bfloat16, float16 or float64' },
  device: {
    fits: (value) => typeof value === 'string' && isDevice(value),
    wanted: 'cpu, meta, or cuda:0 and its like',
  },
  // Any other name would silently mean 4 bits.
  quantType: oneOf(quantTypes),
};
function checkLoadOptions(options: LoadOptions): void {
  checkArguments('A model', options, optionRules);
  if (options.device !== undefined) checkDevice(options.device);
}

/** Random weights: matrices N(0, initializerRange²), gains 1, biases 0, from the seeded generator. */
export function initDecoder(config: Record<string, unknown>, source: string, options: LoadOptions = {}): Decoder {
  const { spec, names } = familyOf(config, source);
  const { dtype = configDtype(config), device = 'cpu', quantType } = options;
  checkLoadOptions(options);
  const weights = new InitialSource(spec, { dtype, device });
  return freedOnError((made) =>
    buildDecoder(spec, names, weights, projections(weights, quantType, device, made), made),
  );
}

/** The parts of a decoder made so far. */
type Made = { dispose(): void }[];

/** A decoder's tensors outlive the scope that they are made in; if one of them cannot be read, the others are freed. */
function freedOnError(build: (made: Made) => Decoder): Decoder {
  const made: Made = [];
  try {
    return scope(() => noGrad(() => build(made)));
  } catch (error) {
    for (const part of made) part.dispose();
    throw error;
  }
}

type MakeProjection = (parts: ProjectionPart[], inputs: number, bias: boolean) => Projection;

/**
 * Makes projections from a source's matrices. A matrix is freed once its projection is made, so only one is in memory
 * at a time.
 */
function projections(
  source: WeightSource,
  quantType: QuantType | undefined,
  device: Device,
  made: Made,
): MakeProjection {
  const matrixOf = (parts: ProjectionPart[], inputs: number) => {
    const named = parts.map(({ name, outputs }) => [`${name}.weight`, [outputs, inputs]] as const);
    if (named.every(([name]) => source.isQuantised(name))) {
      const stored = named.map(([name, shape]) => source.quantised(name, shape));
      if (sameKind(stored)) return QuantisedMatrix.join(stored, device);
    }
    // Matrices that are joined into one (q, k, v) are dequantised if the file does not quantise all of them alike.
    if (quantType === undefined || source.quantType !== null)
      return joined(named.map(([name, shape]) => source.get(name, shape, 'matrix')));
    const plain = named.map(([name, shape]) => source.stored(name, shape));
    return QuantisedMatrix.of(plain, quantType, device);
  };
  return (parts, inputs, bias) =>
    scope(() => {
      const biases = bias ? parts.map(({ name, outputs }) => source.get(`${name}.bias`, [outputs], 'bias')) : null;
      const own = new Projection(parts, matrixOf(parts, inputs), biases === null ? null : joined(biases));
      made.push(...[own.weight, own.quantised, own.bias].filter((part) => part !== null));
      return own;
    });
}

function buildDecoder(
  spec: DecoderSpec,
  names: WeightNames,
  source: WeightSource,
  projection: MakeProjection,
  made: Made,
): Decoder {
  const { hiddenSize: hidden, vocabSize } = spec;
  const kept = (tensor: Tensor) => {
    made.push(tensor);
    return keep(tensor);
  };
  const weight = (name: string, shape: number[]) => kept(source.get(`${name}.weight`, shape, 'matrix'));
  const norm = (name: string, size: number, kind = spec.norm): Norm => ({
    name,
    kind: kind.kind,
    eps: kind.eps,
    weight: kept(source.get(`${name}.weight`, [size], 'gain')),
    bias: kind.bias ? kept(source.get(`${name}.bias`, [size], 'bias')) : null,
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
            bias: spec.headBias ? kept(source.get(`${names.head}.bias`, [vocabSize], 'bias')) : null,
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
