/** Whether whole weights fit beside what a rank holds. */
import { UserError } from '../../errors.ts';
import { type Device, freeBytes } from '../../tensor/index.ts';

const gib = (bytes: number) => `${(bytes / 2 ** 30).toFixed(2)} GiB`;

/** An error with both numbers where whole weights would not fit. */
export function checkRoom(needed: number, device: Device, free = freeBytes(device)): void {
  if (needed <= free) return;
  throw new UserError(
    `--shard full: sampling, evaluation and checkpoints need the whole weights on every rank, ${gib(needed)}, and ${gib(free)} are free on ${device}. Use more ranks (the optimiser's part of each shrinks), --lora, smaller micro-batches, or a smaller --rollout-slots.`,
  );
}
