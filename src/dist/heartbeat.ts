/**
 * A rank's signs of life: a native thread gives one twice a second, even if JavaScript's thread is stuck, and reports
 * that thread's progress. `attune launch` reads them from a pipe (native/dist/beat.cc, launch/launch.ts). Ranks started
 * otherwise leave them in their store and watch one another (native/dist/watch.cc).
 */
import { native } from '../tensor/engine/native.ts';
import type { Place } from './place.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Starts the heartbeat if a launcher listens. */
export function startBeating(env: Environment = process.env): void {
  if (env.ATTUNE_BEAT_FD === undefined) return;
  native.beatStart(Number(env.ATTUNE_BEAT_FD));
  countTurns();
}

/**
 * Without a launcher, starts to watch the other ranks, until `watchStop`: a rank that hangs for `seconds` ends all; 0 =
 * never.
 */
export function startWatching({ host, port, prefix, rank, size }: Place, seconds: number, env: Environment): void {
  if (env.ATTUNE_BEAT_FD !== undefined || seconds === 0) return;
  native.watchStart(host, port, prefix, rank, size, seconds);
  countTurns();
}

function countTurns(): void {
  setInterval(() => native.beatTurn(), 250).unref();
}
