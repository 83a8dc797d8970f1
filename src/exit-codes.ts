/**
 * Exit codes of a command that was asked to end, by the shell's convention: 128 + the signal's number.
 *
 *     process.exitCode = exitCodeOf(interrupt.signal);     // 143 after SIGTERM
 */
export const signalExitCodes: Readonly<Partial<Record<NodeJS.Signals, number>>> = {
  SIGHUP: 129,
  SIGINT: 130,
  SIGTERM: 143,
};

/** Signals by which a command is asked to end. */
export const exitSignals = Object.keys(signalExitCodes) as readonly NodeJS.Signals[];

/** The signal that aborted it; SIGINT where a program did so for a reason of its own. */
export const signalOf = ({ reason }: AbortSignal): NodeJS.Signals =>
  exitSignals.find((name) => name === reason) ?? 'SIGINT';

export const exitCodeOf = (signal: AbortSignal): number => signalExitCodes[signalOf(signal)] as number;

/** Whether a process ended because it was asked to. */
export const wasAsked = (code: number | null): boolean => Object.values(signalExitCodes).includes(code as number);
