/** What a rank tells `attune launch` over a pipe: signs of life (heartbeat.ts), and the run's folder once it is known. */
import { writeSync } from 'node:fs';

/** The pipe's number in a rank. */
export const beatFd = 3;

export interface Report {
  /** Grows with turns of the event loop, native calls and bytes read or written: as long as it does, the rank works. */
  done?: number;
  /** Whether JavaScript's thread is inside a native call, which may take its time. */
  native?: boolean;
  /** Whether that thread runs or waits for a core, and the seconds that it has run. */
  runs?: boolean;
  cpu?: number;
  folder?: { path: string; isNew: boolean };
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
