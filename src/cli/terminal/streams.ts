/**
 * Handles a closed output: `attune … | head` (EPIPE), or a closed terminal (EIO). A command that saves on a hang-up is
 * asked to save and end; any other ends silently, with its own exit code if it had finished, else with 128 + SIGPIPE
 * (13). Standard output that cannot be written for another reason (`attune … > file` on a full disk) lacks what nobody
 * chose to leave out: that is said, and the exit code is 2, also of a command that had finished.
 */
import type { EventEmitter } from 'node:events';
import { endUnfinished } from './unfinished.ts';
import { whyUnwritable } from './unwritable.ts';

/** The part of `process` that is used; tests replace it. */
export interface Program extends Pick<EventEmitter, 'listeners' | 'emit'> {
  stdout: EventEmitter;
  stderr: EventEmitter & { write(text: string): unknown };
  exitCode?: number | string | null;
  exit(code?: number | string | null): void;
}

const guarded = new WeakSet<EventEmitter>();

export function surviveClosedOutput(program: Program = process as Program): void {
  for (const stream of [program.stdout, program.stderr]) {
    if (guarded.has(stream)) continue;
    guarded.add(stream);
    let said = false;
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (stream === program.stderr || isGone(error)) return leave(program);
      if (!said) program.stderr.write(`attune: standard output cannot be written: ${whyUnwritable(error)}.\n`);
      said = true;
      leave(program, 2);
    });
  }
}

/** Whether the reader has left, who may do so. */
const isGone = ({ code = '' }: NodeJS.ErrnoException) => ['EPIPE', 'EIO', 'ECONNRESET'].includes(code);

/** Whatever the error (also a full disk under a log file), losing the output must not lose the run. */
function leave(program: Program, code?: number): void {
  if (program.listeners('SIGHUP').some((listener) => listener !== endUnfinished)) program.emit('SIGHUP', 'SIGHUP');
  else setImmediate(() => program.exit(code ?? program.exitCode ?? 141));
}
