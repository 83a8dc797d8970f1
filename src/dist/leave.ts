/**
 * The end of a rank's process. Rank 0 serves the store and leaves last: another rank may still ask whether all have
 * arrived at the last meeting, or be about to begin the last collective. Every rank counts itself in the store when its
 * process ends, however it ends (the last line of a program, `process.exit`), and rank 0's process waits for all
 * others.
 */
import { wasAsked } from '../exit-codes.ts';
import { native } from '../tensor/engine/native.ts';
import type { Place } from './place.ts';
import { leftKey, type SharedStore } from './store.ts';

/** If all ranks were asked to end, those that ask twice want it now. */
const askedSeconds = 2;

export function leaveInOrder(
  { id }: SharedStore,
  { rank, size, hasStore }: Pick<Place, 'rank' | 'size' | 'hasStore'>,
  { patience, hasFailed }: { patience: number; hasFailed: () => boolean },
): void {
  process.on('exit', (code) => {
    const isServer = rank === 0 && !hasStore;
    // A rank that failed ends at once: the others notice.
    const seconds = code === 0 && !hasFailed() ? patience : wasAsked(code) ? askedSeconds : 0;
    // The others are watched while they are waited for: one that dies meanwhile is named.
    if (isServer && seconds > 0) native.storeAwaitCount(id, leftKey, size - 1, seconds);
    // Without a goodbye the others take it for dead, and end: that is right for a rank that ends by an unreported
    // error.
    if (code === 0 || wasAsked(code) || hasFailed()) native.watchStop();
    if (!isServer) native.storeCount(id, leftKey, askedSeconds);
  });
}
