/** Weights that are dealt over the ranks (--shard full) are gathered for whatever is not an update. */
import type { TrainTask } from './task.ts';

/** Has the whole weights on every rank until the next update. Every rank calls it; nothing to do where none are dealt. */
export async function wholeWeights({ optimizer, decoder }: Pick<TrainTask, 'optimizer' | 'decoder'>): Promise<void> {
  const gathered = await optimizer.weights?.makeWhole();
  // They lie in other memory than before: captured graphs and decode plans are no longer valid.
  if (gathered && decoder !== undefined) decoder.arrangement++;
}
