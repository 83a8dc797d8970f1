/** Whether whole weights fit beside what a rank holds. */
import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';
import { UserError } from '../../errors.ts';
import { native } from '../../tensor/engine/native.ts';
import type { Device } from '../../tensor/index.ts';

/** Bytes that can be allocated on a device at this moment. */
function freeBytes(device: Device): number {
  if (device.startsWith('cuda')) {
    const index = Number(device.split(':')[1] ?? 0);
    const { reserved, allocated } = native.cudaMemory(index);
    return native.cudaDevice(index).freeBytes + reserved - allocated;
  }
  try {
    const [, kilobytes] = /^MemAvailable:\s*(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8')) ?? [];
    if (kilobytes !== undefined) return 1024 * Number(kilobytes);
  } catch {
    // Not Linux.
  }
  return freemem();
}

const gib = (bytes: number) => `${(bytes / 2 ** 30).toFixed(2)} GiB`;

/** An error with both numbers where whole weights would not fit. */
export function checkRoom(needed: number, device: Device, free = freeBytes(device)): void {
  if (needed <= free) return;
  throw new UserError(
    `--shard full: sampling, evaluation and checkpoints need the whole weights on every rank, ${gib(needed)}, and ${gib(free)} are free on ${device}. Use more ranks (the optimiser's part of each shrinks), --lora, smaller micro-batches, or a smaller --rollout-slots.`,
  );
}
