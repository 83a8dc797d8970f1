/**
 * The cache of keys and values: one slot per sequence, `length` positions each, allocated once. On CUDA there is a spare slot:
 * a captured graph always runs all rows, and idle rows write their keys there.
 */
import { type Device, type DType, dtypeBytes, keep, scope, type Tensor, zeros } from '../../tensor/index.ts';
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
