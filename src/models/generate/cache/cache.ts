/**
 * The cache of keys and values, allocated once: blocks of 64 positions, and for each slot (a sequence being written) a
 * table of its blocks. Position p of a slot is position p % 64 of block table[p / 64]; native/cuda/head.cuh has the
 * same rule. On CUDA there are a spare slot and a spare block: a captured graph always runs all rows, and idle rows
 * write their keys there.
 */
import { UserError } from '../../../errors.ts';
import {
  aten,
  type Device,
  type DType,
  dtypeBytes,
  freeBytes,
  isRecorded,
  keep,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../../tensor/index.ts';
import type { DecoderSpec } from '../../families/spec.ts';

/** Positions of a block. */
export const BLOCK = 64;

/** The number of blocks for this many positions. */
export const blocksFor = (positions: number): number => Math.ceil(positions / BLOCK);

/** The choices of `cacheDtype`. */
export const cacheDtypes = ['model', 'int8'] as const;
/** How keys and values are held: in the model's dtype, or in 8 bits with a scale for each head of a token (`SamplerOptions`). */
export type CacheDtype = (typeof cacheDtypes)[number];

/** What determines the layout of a cache. */
export interface CacheKind {
  /** The model's dtype. */
  dtype: DType;
  device: Device;
  /** `model` unless given. */
  cacheDtype?: CacheDtype;
}

export interface CacheSize {
  /** Sequences that are written at the same time. */
  slots: number;
  /** Most tokens of a sequence, prompt included. */
  length: number;
  /** Blocks for all sequences together. */
  blocks: number;
}

export class KvCache {
  readonly slots: number;
  /** Most positions of a slot. */
  readonly length: number;
  readonly blocks: number;
  /** Per layer, [blocks (one more on CUDA), BLOCK, kvHeads, headDim]. */
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
  /**
   * In 8 bits: per layer, [blocks, kvHeads, BLOCK] in bf16; a value is its code times the scale of its token's head.
   * Else empty.
   */
  readonly keyScales: readonly Tensor[];
  readonly valueScales: readonly Tensor[];
  /** The blocks of each slot as native code reads them, [slots (one more on CUDA), most blocks of a slot], int32. */
  readonly tables: Tensor;
  readonly #held: (readonly number[])[];
  #changed = true;

  constructor(spec: DecoderSpec, size: CacheSize, { dtype, device, cacheDtype = 'model' }: CacheKind) {
    const spare = spares(device);
    const blocks = size.blocks + spare;
    const { kvHeads, headDim } = spec.attention;
    const perLayer = (shape: number[], dtype: DType) =>
      Array.from({ length: spec.layers }, () => keep(zeros(shape, { dtype, device })));
    const numbers = () => perLayer([blocks, BLOCK, kvHeads, headDim], cacheDtype === 'int8' ? 'int8' : dtype);
    const scales = () => (cacheDtype === 'int8' ? perLayer([blocks, kvHeads, BLOCK], 'bfloat16') : []);
    const width = blocksFor(size.length);
    this.slots = size.slots;
    this.blocks = size.blocks;
    this.length = width * BLOCK;
    this.keys = numbers();
    this.values = numbers();
    this.keyScales = scales();
    this.valueScales = scales();
    this.tables = keep(zeros([size.slots + spare, width], { dtype: 'int32', device }));
    this.#held = Array.from({ length: size.slots }, () => []);
  }

  /** Whether keys and values are held in 8 bits. */
  get isEightBits(): boolean {
    return this.keyScales.length > 0;
  }

  /** All tensors that hold a block's contents. */
  get #contents(): readonly Tensor[] {
    return [...this.keys, ...this.values, ...this.keyScales, ...this.valueScales];
  }

  /** Writes keys and values of tokens, [tokens, kvHeads, headDim], to these places (`place`) of a layer. */
  write(layer: number, targets: Tensor, k: Tensor, v: Tensor): void {
    const scales = [this.keyScales[layer] ?? null, this.valueScales[layer] ?? null];
    aten('attune::cache_write_', this.keys[layer], this.values[layer], ...scales, targets, k, v);
  }

  /** The blocks of a slot, in the order of its positions. */
  table(slot: number): readonly number[] {
    return this.#held[slot] as readonly number[];
  }

  setTable(slot: number, blocks: readonly number[]): void {
    this.#held[slot] = blocks;
    this.#changed = true;
  }

  /** A position of a slot as an index into all positions of the cache. */
  place(slot: number, position: number): number {
    return (this.table(slot)[Math.floor(position / BLOCK)] as number) * BLOCK + (position % BLOCK);
  }

  /**
   * Copies the changed tables to the device, after the steps already started. Entries without a block point to the
   * spare one.
   */
  upload(): void {
    if (!this.#changed) return;
    this.#changed = false;
    const [rows, width] = [this.tables.size(0), this.tables.size(1)];
    const all = new Int32Array(rows * width);
    if (rows > this.slots) all.fill(this.blocks);
    for (const [slot, blocks] of this.#held.entries()) all.set(blocks, slot * width);
    scope(() => this.tables.copy_(tensor(all, { shape: [rows, width] }), true));
  }

  /** Copies whole blocks: from[i] to to[i]. */
  copyBlocks(from: readonly number[], to: readonly number[]): void {
    if (from.length === 0) return;
    scope(() => {
      const whole = (values: readonly number[]) =>
        tensor(
          BigInt64Array.from(values, (value) => BigInt(value)),
          { device: this.tables.device },
        );
      const [source, target] = [whole(from), whole(to)];
      for (const each of this.#contents) scope(() => each.indexCopy_(0, target, each.indexSelect(0, source)));
    });
  }

  dispose(): void {
    for (const each of [...this.#contents, this.tables]) each.dispose();
  }
}

/** The number of spare slots, and of spare blocks. */
const spares = (device: Device): number => (isRecorded(device) ? 1 : 0);

export function cacheBytes(spec: DecoderSpec, { blocks }: { blocks: number }, kind: CacheKind): number {
  return (blocks + spares(kind.device)) * blockBytes(spec, kind);
}

/** How many blocks fit into this many bytes. */
export function blocksWithin(spec: DecoderSpec, bytes: number, kind: CacheKind): number {
  return Math.floor(bytes / blockBytes(spec, kind)) - spares(kind.device);
}

/**
 * The most blocks that these requests need at the same time. The samples of a prompt share its full blocks if they
 * enter together; those of a request with more samples than slots do not. With fewer slots than responses, it is what
 * the largest responses need without sharing.
 */
export function blocksInFlight(
  requests: readonly { prompt: ArrayLike<number>; maxNewTokens: number; samples?: number }[],
  slots: number,
): number {
  const each = requests.map(({ prompt, maxNewTokens, samples = 1 }) => ({
    samples,
    whole: blocksFor(prompt.length + maxNewTokens),
    shared: Math.floor(prompt.length / BLOCK),
  }));
  const all = each.reduce(
    (sum, { samples, whole, shared }) =>
      sum + (samples > slots ? samples * whole : shared + samples * (whole - shared)),
    0,
  );
  let [left, largest] = [slots, 0];
  for (const { samples, whole } of each.sort((a, b) => b.whole - a.whole)) {
    const count = Math.min(samples, left);
    largest += count * whole;
    left -= count;
  }
  return Math.max(1, Math.min(all, largest));
}

function blockBytes({ layers, attention: { kvHeads, headDim } }: DecoderSpec, kind: CacheKind): number {
  const headBytes = kind.cacheDtype === 'int8' ? headDim + dtypeBytes.bfloat16 : headDim * dtypeBytes[kind.dtype];
  return 2 * layers * BLOCK * kvHeads * headBytes;
}

/** Refuses a cache that is larger than the free memory, and says what would fit. `held`: bytes that are freed first. */
export function checkFits(size: CacheSize, bytes: number, device: Device, held: number): void {
  if (bytes <= held) return;
  const free = freeBytes(device) + held;
  if (bytes <= free) return;
  const gibibytes = (count: number) => `${(count / 2 ** 30).toLocaleString('en', { maximumFractionDigits: 1 })} GiB`;
  const fitting = Math.max(0, Math.floor(free / (bytes / size.length) / 64) * 64);
  const sequences = size.slots === 1 ? '1 sequence' : `${size.slots} sequences at once`;
  throw new UserError(
    `A cache for ${sequences} of ${size.length.toLocaleString('en')} tokens takes ${gibibytes(bytes)}, and ${gibibytes(free)} are free on ${device}. ` +
      `At most ${fitting.toLocaleString('en')} tokens a sequence fit, prompt included: ask for fewer new tokens, or for fewer responses at once.`,
  );
}

const DEFAULT_SLOTS = 128;
/** Default slots on the CPU: as many as this much cache holds, but at least 32 and at most 128. */
const CPU_CACHE_BYTES = 256 * 2 ** 20;
const CPU_SLOTS = 32;

/** Default number of slots, for sequences of this length. */
export function mostSlots(spec: DecoderSpec, length: number, kind: CacheKind): number {
  if (kind.device !== 'cpu') return DEFAULT_SLOTS;
  const affordable = Math.floor(CPU_CACHE_BYTES / cacheBytes(spec, { blocks: blocksFor(length) }, kind));
  return Math.min(DEFAULT_SLOTS, Math.max(CPU_SLOTS, affordable));
}
