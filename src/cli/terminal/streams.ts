/**
 * Handles a closed output: `attune … | head` (EPIPE), or a closed terminal (EIO). A command that saves on a hang-up is
 * asked to save and end; any other ends silently, with its own exit code if it had finished, else with 128 + SIGPIPE
 * (13).
 */
import type { EventEmitter } from 'node:events';

/** The part of `process` that is used; tests replace it. */
export interface Program extends Pick<EventEmitter, 'listenerCount' | 'emit'> {
  stdout: EventEmitter;
  stderr: EventEmitter;
  exitCode?: number | string | null;
  exit(code?: number | string | null): void;
}

const guarded = new WeakSet<EventEmitter>();

export function surviveClosedOutput(program: Program = process as Program): void {
  for (const stream of [program.stdout, program.stderr]) {
    if (guarded.has(stream)) continue;
    guarded.add(stream);
    stream.on('error', () => leave(program));
  }
}

/** Whatever the error (also a full disk under a log file), losing the output must not lose the run. */
function leave(program: Program): void {
  if (program.listenerCount('SIGHUP') > 0) program.emit('SIGHUP', 'SIGHUP');
  else setImmediate(() => program.exit(program.exitCode ?? 141));
}
