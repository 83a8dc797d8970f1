/**
 * A rank's signs of life: a native thread writes a line twice a second, whatever JavaScript's thread does, and tells how far
 * that one is (native/dist/beat.cc). `attune launch` decides what a hang is (launch.ts).
 */
import { native } from '../tensor/engine/native.ts';

/** Begins to beat, where a launcher listens. */
export function startBeating(env: Readonly<Record<string, string | undefined>> = process.env): void {
  if (env.ATTUNE_BEAT_FD === undefined) return;
  native.beatStart(Number(env.ATTUNE_BEAT_FD));
  setInterval(() => native.beatTurn(), 250).unref();
}
