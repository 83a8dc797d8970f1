/**
 * A rank's signs of life to `attune launch`, over a pipe: one line of JSON a second from the event loop, and the run's
 * folder once it is known.
 */
import { writeSync } from 'node:fs';

/** The pipe's number in a rank. */
export const beatFd = 3;

export interface Report {
  folder?: { path: string; isNew: boolean };
}

/** Begins to beat, where a launcher listens. */
export function startBeating(env: Readonly<Record<string, string | undefined>> = process.env): void {
  if (env.ATTUNE_BEAT_FD === undefined) return;
  report({});
  setInterval(() => report({}), 1000).unref();
}

/** Tells the launcher something; nothing where there is none. */
export function report(message: Report): void {
  if (process.env.ATTUNE_BEAT_FD === undefined) return;
  try {
    writeSync(Number(process.env.ATTUNE_BEAT_FD), `${JSON.stringify(message)}\n`);
  } catch (error) {
    // Without the launcher nobody would end this rank if another one died.
    if ((error as NodeJS.ErrnoException).code === 'EPIPE') process.exit(1);
  }
}
