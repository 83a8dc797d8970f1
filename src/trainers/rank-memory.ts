/** The memory of each of several ranks, derived from that of a single process. */
import { rankBytes } from '../dist/shard/memory.ts';
import type { Shard } from '../dist/shard/optimizer.ts';
import { type LoraOptions, type MemoryEstimate, type Model, type QuantType, weightBytes } from '../models/index.ts';
import { type DType, dtypeBytes } from '../tensor/index.ts';

interface RankOptions {
  dtype: DType;
  lora: LoraOptions | null;
  quantType?: QuantType;
  shard: Shard;
  ranks: number;
}

/**
 * `alone` is the estimate for a single process, from a model on the `meta` device. Every rank holds a separate
 * reference whole, and its own activations.
 */
export function rankMemory(model: Model, alone: MemoryEstimate, options: RankOptions): MemoryEstimate {
  const { dtype, lora, quantType, shard, ranks } = options;
  if (ranks === 1) return alone;
  const { decoder } = model;
  const count = (tensors: Iterable<readonly [string, { numel: number }]>) =>
    [...tensors].map(([, { numel }]) => numel).reduce((sum, numel) => sum + numel, 0);
  const blocks = decoder.layers.map((layer) => count(layer.parameters()));
  const whole = weightBytes(model, dtype, quantType);
  const rest = (alone.parameters - blocks.reduce((sum, size) => sum + size, 0)) * dtypeBytes[dtype];
  const bytes = rankBytes(
    {
      weights: { whole, block: (whole - rest) / Math.max(1, blocks.length), rest },
      trained: alone.trainable,
      trainedSize: lora === null ? dtypeBytes[dtype] : dtypeBytes[lora.dtype ?? 'float32'],
      block: Math.max(0, ...blocks),
      largest: Math.max(...Array.from(decoder.parameters(), ([, { numel }]) => numel)),
      isAdapter: lora !== null,
    },
    shard,
    ranks,
  );
  const held = bytes.weights + (alone.weightBytes - whole);
  return {
    ...alone,
    weightBytes: held,
    optimizerBytes: bytes.optimizer,
    totalBytes: alone.totalBytes - alone.weightBytes - alone.optimizerBytes + held + bytes.optimizer,
  };
}
