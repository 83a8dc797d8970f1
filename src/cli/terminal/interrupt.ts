/**
 * Ctrl-C and SIGTERM for a command that trains: the first asks the run to save and stop, a second Ctrl-C leaves at
 * once.
 *
 *     const interrupt = onInterrupt((signal) => tell(`${signal}: saving; press Ctrl-C again to leave at once`));
 *     try { await trainReward(config, { signal: interrupt.signal }); } finally { interrupt.dispose(); }
 */
import { exitSignals, signalExitCodes } from '../../exit-codes.ts';

export interface Interrupt extends Disposable {
  readonly signal: AbortSignal;
  dispose(): void;
}

/** The part of `process` that is used; tests replace it. */
export interface SignalSource {
  on(name: NodeJS.Signals, listener: (name: NodeJS.Signals) => void): unknown;
  removeListener(name: NodeJS.Signals, listener: (name: NodeJS.Signals) => void): unknown;
  exit(code: number): void;
}

/**
 * One Ctrl-C may arrive several times: from the terminal, and passed on by npm and by the process that started this one. What
 * comes within this time after the first is the same one.
 */
export const ONE_KEYSTROKE_MS = 1000;

export function onInterrupt(notify?: (name: NodeJS.Signals) => void, source: SignalSource = process): Interrupt {
  const controller = new AbortController();
  let first = 0;
  const listener = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) {
      // SIGTERM is often sent repeatedly by schedulers; only a person's second Ctrl-C means "now".
      if (name === 'SIGINT' && performance.now() - first > ONE_KEYSTROKE_MS) source.exit(signalExitCodes[name] ?? 1);
      return;
    }
    first = performance.now();
    // Aborts before printing: on a closed terminal, printing would call this listener again.
    controller.abort(name);
    notify?.(name);
  };
  for (const name of exitSignals) source.on(name, listener);
  const dispose = () => {
    for (const name of exitSignals) source.removeListener(name, listener);
  };
  return { signal: controller.signal, dispose, [Symbol.dispose]: dispose };
}
