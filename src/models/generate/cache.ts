/**
 * The cache of keys and values: one slot per sequence, `length` positions each, allocated once. On CUDA there is a spare slot:
 * a captured graph always runs all rows, and idle rows write their keys there.
 */
import { freemem } from 'node:os';
import { UserError } from '../../errors.ts';
import {
  cudaMemory,
  type Device,
  type DType,
  dtypeBytes,
  engineInfo,
  keep,
  scope,
  type Tensor,
  zeros,
} from '../../tensor/index.ts';
import type { DecoderSpec } from '../families/spec.ts';

export interface CacheSize {
  slots: number;
  /** Tokens per slot, prompt included. */
  length: number;
}

export class KvCache {
  readonly slots: number;
  readonly length: number;
  /** Per layer, [slots (one more on CUDA), length, kvHeads, headDim]. */
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];

  constructor(spec: DecoderSpec, size: CacheSize, options: { dtype: DType; device: Device }) {
    const shape = [slotsHeld(size.slots, options.device), size.length, spec.attention.kvHeads, spec.attention.headDim];
    const make = () => Array.from({ length: spec.layers }, () => keep(zeros(shape, options)));
    this.slots = size.slots;
    this.length = size.length;
    this.keys = make();
    this.values = make();
  }

  /** Copies the first `count` positions of a slot into other slots. */
  copy(from: number, to: readonly number[], count: number): void {
    if (count === 0) return;
    for (const tensor of [...this.keys, ...this.values]) {
      scope(() => {
        const source = tensor.select(0, from).narrow(0, 0, count);
        for (const slot of to) tensor.select(0, slot).narrow(0, 0, count).copy_(source);
      });
    }
  }

  dispose(): void {
    for (const tensor of [...this.keys, ...this.values]) tensor.dispose();
  }
}

const slotsHeld = (slots: number, device: Device): number => (device === 'cpu' ? slots : slots + 1);

export function cacheBytes(spec: DecoderSpec, size: CacheSize, options: { dtype: DType; device: Device }): number {
  const { kvHeads, headDim } = spec.attention;
  const positions = slotsHeld(size.slots, options.device) * size.length;
  return 2 * spec.layers * positions * kvHeads * headDim * dtypeBytes[options.dtype];
}

/**
 * Refuses a cache that is larger than the memory that is free, with what would fit. `held`: bytes of a cache that it replaces.
 */
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

function freeBytes(device: Device): number {
  if (!device.startsWith('cuda')) return device === 'cpu' ? freemem() : Number.POSITIVE_INFINITY;
  const { reserved, allocated } = cudaMemory(device);
  const gpus = engineInfo().devices.filter((each) => 'freeBytes' in each);
  const gpu = gpus[Number(device.split(':')[1] ?? 0)];
  return gpu === undefined ? Number.POSITIVE_INFINITY : gpu.freeBytes + reserved - allocated;
}

const DEFAULT_SLOTS = 128;
/** Default slots on the CPU: as many as this much cache holds, but at least 32 and at most 128. */
const CPU_CACHE_BYTES = 256 * 2 ** 20;
const CPU_SLOTS = 32;

/** Slots of a sampler that was not given a number, for sequences of this length. */
export function mostSlots(spec: DecoderSpec, length: number, options: { dtype: DType; device: Device }): number {
  if (options.device !== 'cpu') return DEFAULT_SLOTS;
  const affordable = Math.floor(CPU_CACHE_BYTES / cacheBytes(spec, { slots: 1, length }, options));
  return Math.min(DEFAULT_SLOTS, Math.max(CPU_SLOTS, affordable));
}
