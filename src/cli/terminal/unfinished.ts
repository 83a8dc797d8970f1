/**
 * Files that are being written, under their temporary names. Nothing may be left of one whose command is ended in the middle, for
 * its name begins with a dot.
 */
import { rmSync } from 'node:fs';
import { exitSignals } from '../../exit-codes.ts';

const unfinished = new Set<string>();

export function begun(path: string): void {
  if (unfinished.size === 0) {
    for (const name of exitSignals) process.on(name, endUnfinished);
    process.on('exit', removeAll);
  }
  unfinished.add(path);
}

export function ended(path: string): void {
  if (!unfinished.delete(path) || unfinished.size > 0) return;
  for (const name of exitSignals) process.removeListener(name, endUnfinished);
  process.removeListener('exit', removeAll);
}

/** Ends a command that does not listen to a signal as the signal itself does. */
export function endUnfinished(signal: NodeJS.Signals): void {
  if (process.listenerCount(signal) > 1) return; // The command stops by itself.
  removeAll();
  process.kill(process.pid, signal);
}

function removeAll(): void {
  for (const path of unfinished) {
    rmSync(path, { force: true });
    ended(path);
  }
}
