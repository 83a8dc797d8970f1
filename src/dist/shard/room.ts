/** Whether whole weights fit in addition to what a rank holds. */
import { UserError } from '../../errors.ts';
import { type Device, freeBytes } from '../../tensor/index.ts';

/** Such as `16.00 GiB`, `340 MiB`, `0.4 MiB`. */
export function sizeText(bytes: number): string {
  if (bytes >= 2 ** 30) return `${(bytes / 2 ** 30).toFixed(2)} GiB`;
  return `${(bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0)} MiB`;
}

/** Throws an error with both numbers if whole weights would not fit. */
export function checkRoom(needed: number, device: Device, free = freeBytes(device)): void {
  if (needed <= free) return;
  throw new UserError(
    `--shard full: sampling, evaluation and checkpoints need the whole weights on every rank, ${sizeText(needed)}, and ${sizeText(free)} are free on ${device}. Use more ranks (the optimiser's part of each shrinks), --lora, smaller micro-batches, or a smaller --rollout-slots.`,
  );
}
