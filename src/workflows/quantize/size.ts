/** Size and time measurements of both commands. */
import type { Model } from '../../models/index.ts';
import { dtypeBytes } from '../../tensor/index.ts';

/** The memory of a model's weights, including its head. */
export function sizeOf({ decoder, head }: Model): { size_bytes: number; size_mb: number } {
  const headBytes = head === null ? 0 : head.weight.numel * dtypeBytes[head.weight.dtype];
  const bytes = decoder.bytes + headBytes;
  return { size_bytes: bytes, size_mb: bytes / 2 ** 20 };
}

/** Returns a function that gives the seconds elapsed. */
export function stopwatch(): () => number {
  const started = performance.now();
  return () => (performance.now() - started) / 1000;
}
