/**
 * A Hugging Face folder into a Decoder, and a Decoder with fresh random weights out of a config alone.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { QuantisedMatrix, type QuantType } from '../../nn/index.ts';
import {
  type Checkpoint,
  cat,
  type Device,
  type DType,
  empty,
  keep,
  noGrad,
  ones,
  scope,
  type Tensor,
  zeros,
} from '../../tensor/index.ts';
import { Decoder } from '../decoder/decoder.ts';
import { Layer } from '../decoder/layer.ts';
import type { Norm } from '../decoder/norm.ts';
import { Projection, type ProjectionPart } from '../decoder/projection.ts';
import { familyOf } from '../families/index.ts';
import type { DecoderSpec, WeightNames } from '../families/spec.ts';
import { storedHead } from './head.ts';

export interface LoadOptions {
  dtype?: DType;
  device?: Device;
  /**
   * Holds the blocks' matrices in 8 or 4 bits, frozen: for references, reward models and the base of adapters. Embeddings, the
   * heads and the norms stay as they are. Each matrix is quantised as it is read, so that the whole never lies there plain.
   */
  quantType?: QuantType;
}

type Placing = Required<Pick<LoadOptions, 'dtype' | 'device'>>;

/** Where a decoder's weights come from: a checkpoint, or the initial distribution. */
interface WeightSource {
  /** Whether it holds a language-model head where one is not tied. */
  readonly hasHead: boolean;
  /** A tensor of this shape under this name, placed as the decoder is. */
  get(name: string, shape: readonly number[], kind: 'matrix' | 'gain' | 'bias'): Tensor;
  /** A matrix as it is stored, on the CPU: only to be read, and only while the source is open. */
  stored(name: string, shape: readonly number[]): Tensor;
}

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
  const source = new CheckpointSource(checkpoint, names, folder, { dtype, device });
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

class CheckpointSource implements WeightSource {
  readonly #checkpoint: Checkpoint;
  readonly #names: WeightNames;
  readonly #folder: string;
  readonly #placing: Placing;
  readonly #used = new Set<string>();
  constructor(checkpoint: Checkpoint, names: WeightNames, folder: string, placing: Placing) {
    this.#checkpoint = checkpoint;
    this.#names = names;
    this.#folder = folder;
    this.#placing = placing;
  }
  /** Headless checkpoints (GPT-2's on the hub) lack the base model's prefix. */
  #find(name: string): string | undefined {
    if (this.#checkpoint.has(name)) return name;
    const prefix = `${this.#names.basePrefix}.`;
    const bare = name.startsWith(prefix) ? name.slice(prefix.length) : undefined;
    return bare !== undefined && this.#checkpoint.has(bare) ? bare : undefined;
  }
  get hasHead(): boolean {
    return this.#find(`${this.#names.head}.weight`) !== undefined || storedHead(this.#checkpoint) === undefined;
  }
  get(name: string, shape: readonly number[], kind: 'matrix' | 'gain' | 'bias'): Tensor {
    // a copy of our own: the file's pages are mapped, and weights are trained in place
    return this.#mapped(name, shape, kind)
      .to({ ...this.#placing, copy: true })
      .contiguous();
  }
  stored(name: string, shape: readonly number[]): Tensor {
    return this.#mapped(name, shape, 'matrix');
  }
  #mapped(name: string, shape: readonly number[], kind: 'matrix' | 'gain' | 'bias'): Tensor {
    const found = this.#find(name);
    if (found === undefined)
      throw new UserError(`${this.#folder}: the checkpoint has no "${name}", which its config calls for.`);
    this.#used.add(found);
    const stored = this.#checkpoint.tensor(found);
    const transposed = kind === 'matrix' && this.#names.transposed && isConv1d(name, this.#names);
    const tensor = transposed ? stored.t() : stored;
    if (tensor.shape.join() !== shape.join()) {
      throw new UserError(`${this.#folder}: "${found}" is [${tensor.shape}], but its config calls for [${shape}].`);
    }
    return tensor;
  }
  /** A tensor that nothing read would change the model silently: a bias that the config denies, another architecture's part. */
  refuseLeftovers(): void {
    const head = storedHead(this.#checkpoint) ?? 'score';
    const harmless = new Set([`${head}.weight`, `${head}.bias`, `${this.#names.head}.weight`]);
    const left = this.#checkpoint.names.filter(
      (name) => !this.#used.has(name) && !harmless.has(name) && !this.#names.ignored?.test(name),
    );
    if (left.length === 0) return;
    const shown = left
      .slice(0, 4)
      .map((name) => `"${name}"`)
      .join(', ');
    throw new UserError(
      `${this.#folder}: the checkpoint holds ${left.length} tensors that its config has no place for: ${shown}${left.length > 4 ? ', …' : ''}.`,
    );
  }
}

/** Conv1D matrices are those of the blocks; embeddings and the head are ordinary. */
function isConv1d(name: string, names: WeightNames): boolean {
  return (
    name !== `${names.embedding}.weight` && name !== `${names.positions}.weight` && name !== `${names.head}.weight`
  );
}

class InitialSource implements WeightSource {
  readonly #spec: DecoderSpec;
  readonly #placing: Placing;
  constructor(spec: DecoderSpec, placing: Placing) {
    this.#spec = spec;
    this.#placing = placing;
  }
  readonly hasHead = true;
  get(_name: string, shape: readonly number[], kind: 'matrix' | 'gain' | 'bias'): Tensor {
    if (kind === 'gain') return ones(shape, this.#placing);
    if (kind === 'bias') return zeros(shape, this.#placing);
    return this.#drawn(shape).to(this.#placing.dtype);
  }
  stored(_name: string, shape: readonly number[]): Tensor {
    return this.#drawn(shape).to({ device: 'cpu' });
  }
  /** In f32, so that a seed gives the same weights in every dtype. */
  #drawn(shape: readonly number[]): Tensor {
    return empty(shape, { device: this.#placing.device }).normal_(0, this.#spec.initializerRange);
  }
}

type MakeProjection = (parts: ProjectionPart[], inputs: number, bias: boolean) => Projection;

/** Of a source's matrices. What is read on the way is gone when it is made: a checkpoint passes one matrix at a time. */
function projections(source: WeightSource, quantType: QuantType | undefined, device: Device): MakeProjection {
  const plain = (parts: ProjectionPart[], inputs: number) =>
    joined(parts.map(({ name, outputs }) => source.get(`${name}.weight`, [outputs, inputs], 'matrix')));
  const stored = (parts: ProjectionPart[], inputs: number) =>
    parts.map(({ name, outputs }) => source.stored(`${name}.weight`, [outputs, inputs]));
  return (parts, inputs, bias) =>
    scope(() => {
      const matrix =
        quantType === undefined ? plain(parts, inputs) : QuantisedMatrix.of(stored(parts, inputs), quantType, device);
      const biases = bias ? parts.map(({ name, outputs }) => source.get(`${name}.bias`, [outputs], 'bias')) : null;
      return new Projection(parts, matrix, biases === null ? null : joined(biases));
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
