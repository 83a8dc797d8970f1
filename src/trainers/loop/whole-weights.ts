/** Gathers sharded weights (--shard full) for everything except updates. */
import type { TrainTask } from './task.ts';

/**
 * Gathers the whole weights on every rank until the next update. Every rank must call it. Does nothing for unsharded
 * weights.
 */
export async function wholeWeights({ optimizer, decoder }: Pick<TrainTask, 'optimizer' | 'decoder'>): Promise<void> {
  const gathered = await optimizer.weights?.makeWhole();
  // The gathered weights are at new addresses, so captured graphs and decode plans are invalid.
  if (gathered && decoder !== undefined) decoder.arrangement++;
}
