/**
 * What a rank tells `attune launch` over a pipe: signs of life (heartbeat.ts), the run's folder once it is known, and
 * the error that ends it.
 */
import { fstatSync, writeSync } from 'node:fs';

/** The pipe's file descriptor in a rank. */
export const beatFd = 3;

/** A run's folder, and whether the ranks created it. */
export interface RunFolder {
  path: string;
  isNew: boolean;
}

export interface Report {
  /**
   * Grows with turns of the event loop, native calls and bytes read or written: as long as it grows, the rank makes
   * progress.
   */
  done?: number;
  /** Whether JavaScript's thread is inside a native call, which may take its time. */
  native?: boolean;
  /** Whether that thread runs or waits for a core, and the seconds it has run. */
  runs?: boolean;
  cpu?: number;
  folder?: RunFolder;
  /** Ranks that have not arrived at the start after some seconds of waiting; empty once all have. */
  waiting?: number[];
  /** Why the rank ends, and its exit code. The launcher shows it, once if several ranks say the same. */
  error?: { text: string; code: number };
}

const pipe = () => Number(process.env.ATTUNE_BEAT_FD ?? Number.NaN);

/**
 * Whether `attune launch` started this process as a rank. A program started by a rank inherits the variable, but not
 * the pipe.
 */
export const isLaunched = (): boolean => isPipe(pipe());

/** Reports to the launcher; false if there is none. */
export function report(message: Report): boolean {
  if (!isLaunched()) return false;
  try {
    writeSync(pipe(), `${JSON.stringify(message)}\n`);
    return true;
  } catch (error) {
    // Without the launcher, nobody would end this rank when another one dies.
    if ((error as NodeJS.ErrnoException).code === 'EPIPE') process.exit(1);
    return false;
  }
}

function isPipe(descriptor: number): boolean {
  if (!Number.isInteger(descriptor)) return false;
  try {
    const about = fstatSync(descriptor);
    return about.isFIFO() || about.isSocket();
  } catch {
    return false;
  }
}
