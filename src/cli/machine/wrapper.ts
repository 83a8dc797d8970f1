/**
 * Under an older Node, and under `npm run`, a process stands before this one that finds Node 24 and runs it (scripts/node24.mjs). It
 * passes signals on, but not SIGKILL, which it never sees. Whoever kills it means this one: a launcher that went on alone would
 * train on, with its ranks, unseen.
 */

/** Where the wrapper leaves its process number for the process that it starts. */
const variable = 'ATTUNE_WRAPPER';
/** Killed, as a shell says it: 128 + 9. */
const killed = 137;
const intervalMs = 250;

/** Ends this process when its wrapper is gone. Does nothing where there is none. */
export function leaveWithWrapper({
  env = process.env,
  parent = () => process.ppid,
  leave = () => process.exit(killed),
}: {
  env?: Record<string, string | undefined>;
  parent?: () => number;
  leave?: () => void;
} = {}): NodeJS.Timeout | undefined {
  const wrapper = Number(env[variable]);
  // Whatever this process starts is not the wrapper's child.
  delete env[variable];
  if (parent() !== wrapper) return undefined;
  const timer = setInterval(() => {
    if (parent() === wrapper) return;
    clearInterval(timer);
    leave();
  }, intervalMs);
  return timer.unref();
}
