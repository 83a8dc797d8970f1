/** Where a decoder's weights come from: a checkpoint, or the initial distribution. */
import { UserError } from '../../errors.ts';
import { QuantisedMatrix, type QuantType } from '../../nn/index.ts';
import type { QuantisedPart } from '../../nn/quantised.ts';
import {
  type Checkpoint,
  type Device,
  type DType,
  empty,
  isFloating,
  ones,
  type Tensor,
  zeros,
} from '../../tensor/index.ts';
import type { DecoderSpec, WeightNames } from '../families/spec.ts';
import { readQuantised, type StoredTensors, storedQuantType } from './bitsandbytes.ts';
import { storedHead } from './head.ts';

interface Placing {
  dtype: DType;
  device: Device;
}

export interface WeightSource {
  /** Whether it has a language-model head that is not tied to the embedding. */
  readonly hasHead: boolean;
  /** How its blocks' matrices are quantised; null if they are not. */
  readonly quantType: QuantType | null;
  /** The tensor of this name, checked against the shape, in the decoder's dtype and on its device. */
  get(name: string, shape: readonly number[], kind: 'matrix' | 'gain' | 'bias'): Tensor;
  /** A matrix as it is stored, on the CPU. It must not be written to, and is valid only while the source is open. */
  stored(name: string, shape: readonly number[]): Tensor;
  isQuantised(name: string): boolean;
  /** A matrix that is stored quantised. It must not be written to, and is valid only while the source is open. */
  quantised(name: string, shape: readonly [number, number]): QuantisedPart;
}

/** The weights of a checkpoint. Quantised ones (bitsandbytes.ts) can be read as stored or dequantised. */
export class CheckpointSource implements WeightSource {
  readonly #checkpoint: Checkpoint;
  readonly #names: WeightNames;
  readonly #folder: string;
  readonly #placing: Placing;
  readonly #used = new Set<string>();
  readonly quantType: QuantType | null;
  readonly #stored: StoredTensors;
  constructor(
    checkpoint: Checkpoint,
    names: WeightNames,
    folder: string,
    placing: Placing,
    quantType: QuantType | null,
  ) {
    this.#checkpoint = checkpoint;
    this.#names = names;
    this.#folder = folder;
    this.#placing = placing;
    this.quantType = quantType;
    this.#stored = {
      has: (name) => checkpoint.has(name),
      tensor: (name) => {
        this.#used.add(name);
        return checkpoint.tensor(name);
      },
    };
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
    // A copy, because the file's pages are mapped read-only and weights are trained in place.
    return this.#mapped(name, shape, kind)
      .to({ ...this.#placing, copy: true })
      .contiguous();
  }
  stored(name: string, shape: readonly number[]): Tensor {
    return this.#mapped(name, shape, 'matrix');
  }
  isQuantised(name: string): boolean {
    const found = this.#find(name);
    const type = found === undefined ? null : storedQuantType(this.#stored, found);
    if (type !== null && type !== this.quantType)
      throw new UserError(
        `${this.#folder}: "${found}" is stored in ${type === 'int4' ? 4 : 8} bits, but quantization_config in config.json ${this.quantType === null ? 'is missing' : `says ${this.quantType}`}.`,
      );
    return type !== null;
  }
  quantised(name: string, shape: readonly [number, number]): QuantisedPart {
    return readQuantised(this.#stored, this.#find(name) as string, shape, this.#folder);
  }
  #mapped(name: string, shape: readonly number[], kind: 'matrix' | 'gain' | 'bias'): Tensor {
    const found = this.#find(name);
    if (found === undefined)
      throw new UserError(`${this.#folder}: the checkpoint has no "${name}", which its config calls for.`);
    this.#used.add(found);
    if (kind === 'matrix' && this.isQuantised(name)) {
      using matrix = QuantisedMatrix.join([this.quantised(name, shape as [number, number])]);
      return matrix.dequantise();
    }
    const stored = this.#checkpoint.tensor(found);
    if (!isFloating(stored.dtype))
      throw new UserError(
        `${this.#folder}: "${found}" is ${stored.dtype}, but nothing beside it says how it is quantised: the file is not whole.`,
      );
    const transposed = kind === 'matrix' && this.#names.transposed && isConv1d(name, this.#names);
    const tensor = transposed ? stored.t() : stored;
    if (tensor.shape.join() !== shape.join()) {
      throw new UserError(`${this.#folder}: "${found}" is [${tensor.shape}], but its config calls for [${shape}].`);
    }
    return tensor;
  }
  /**
   * Refuses tensors that nothing read: ignoring a bias or a part of another architecture would silently change the
   * model.
   */
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

/** Whether a matrix is stored transposed (GPT-2's Conv1D): those of the blocks are; embeddings and the head are not. */
function isConv1d(name: string, names: WeightNames): boolean {
  return (
    name !== `${names.embedding}.weight` && name !== `${names.positions}.weight` && name !== `${names.head}.weight`
  );
}

/** Random initial weights. */
export class InitialSource implements WeightSource {
  readonly #spec: DecoderSpec;
  readonly #placing: Placing;
  constructor(spec: DecoderSpec, placing: Placing) {
    this.#spec = spec;
    this.#placing = placing;
  }
  readonly hasHead = true;
  readonly quantType = null;
  isQuantised(): boolean {
    return false;
  }
  quantised(name: string): never {
    throw new Error(`${name} is not quantised`);
  }
  get(_name: string, shape: readonly number[], kind: 'matrix' | 'gain' | 'bias'): Tensor {
    if (kind === 'gain') return ones(shape, this.#placing);
    if (kind === 'bias') return zeros(shape, this.#placing);
    return this.#drawn(shape).to(this.#placing.dtype);
  }
  stored(_name: string, shape: readonly number[]): Tensor {
    return this.#drawn(shape).to({ device: 'cpu' });
  }
  /** Drawn in f32, so that a seed gives the same weights in every dtype. */
  #drawn(shape: readonly number[]): Tensor {
    return empty(shape, { device: this.#placing.device }).normal_(0, this.#spec.initializerRange);
  }
}
