/**
 * The keys and values of sequences that are being written: one slot per sequence, `length` positions each, allocated once.
 */
import { type Device, type DType, dtypeBytes, keep, type Tensor, zeros } from '../../tensor/index.ts';
import type { DecoderSpec } from '../families/spec.ts';

export interface CacheSize {
  slots: number;
  /** Tokens per slot, prompt included. */
  length: number;
}

export class KvCache {
  readonly slots: number;
  readonly length: number;
  /** Per layer, [slots, length, kvHeads, headDim]. */
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];

  constructor(spec: DecoderSpec, size: CacheSize, options: { dtype: DType; device: Device }) {
    const shape = [size.slots, size.length, spec.attention.kvHeads, spec.attention.headDim];
    const make = () => Array.from({ length: spec.layers }, () => keep(zeros(shape, options)));
    this.slots = size.slots;
    this.length = size.length;
    this.keys = make();
    this.values = make();
  }

  dispose(): void {
    for (const tensor of [...this.keys, ...this.values]) tensor.dispose();
  }
}

export function cacheBytes(spec: DecoderSpec, size: CacheSize, dtype: DType): number {
  return (
    2 * spec.layers * size.slots * size.length * spec.attention.kvHeads * spec.attention.headDim * dtypeBytes[dtype]
  );
}
