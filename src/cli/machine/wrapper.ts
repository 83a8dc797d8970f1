/**
 * Under an older Node, and under `npm run`, processes stand before this one: npm, perhaps its shell, and one that finds Node 24 and runs it
 * (scripts/node24.mjs). They pass signals on, but not SIGKILL, which they never see. Whoever kills one of them means this one: a
 * launcher that went on alone would train on, with its ranks, unseen.
 */
import { readFileSync } from 'node:fs';

/** Where the wrapper leaves its process number for the process that it starts. */
const variable = 'ATTUNE_WRAPPER';
/** Killed, as a shell says it: 128 + 9. */
const killed = 137;
const intervalMs = 250;

/** What is asked about processes; tests replace it. */
export interface Surroundings {
  env: Record<string, string | undefined>;
  /** The parent of a process, of this one unless given; 0 where it is not known. */
  parent: (pid?: number) => number;
  /** The words that a process was started with. */
  words: (pid: number) => string[];
  /** Called when the wrapper is gone, and when npm is: the run is then saved. */
  leave: () => void;
  save: () => void;
}

const real: Surroundings = {
  env: process.env,
  parent: (pid) => (pid === undefined ? process.ppid : parentOf(pid)),
  words: wordsOf,
  leave: () => process.exit(killed),
  save: () => process.kill(process.pid, 'SIGTERM'),
};

/** Ends this process when its wrapper is gone, or npm before it. Does nothing where there is neither. */
export function leaveWithWrapper(given: Partial<Surroundings> = {}): NodeJS.Timeout | undefined {
  const around = { ...real, ...given };
  const { env, parent, leave, save } = around;
  const wrapper = Number(env[variable]);
  // Whatever this process starts is not the wrapper's child.
  delete env[variable];
  const isWrapped = parent() === wrapper;
  const chain = npmAbove(isWrapped ? wrapper : undefined, around);
  if (!isWrapped && chain === undefined) return undefined;
  const timer = setInterval(() => {
    if (isWrapped && parent() !== wrapper) {
      clearInterval(timer);
      leave();
    } else if (chain !== undefined && !isWhole(chain, parent)) {
      clearInterval(timer);
      save();
    }
  }, intervalMs);
  return timer.unref();
}

/** A process, its parent, and so on up to npm. The first is undefined for this process. */
type Chain = readonly [number | undefined, ...number[]];

/** npm, where it has started the process, with nothing but its shell between. */
function npmAbove(first: number | undefined, { env, parent, words }: Surroundings): Chain | undefined {
  if (env.npm_command === undefined) return undefined;
  const above = parent(first);
  const isShell = words(above)[1] === '-c';
  const npm = isShell ? parent(above) : above;
  // npm gives itself a name such as `npm run attune`.
  if (!/^npm\b/.test(words(npm)[0] ?? '')) return undefined;
  return isShell ? [first, above, npm] : [first, npm];
}

const isWhole = (chain: Chain, parent: Surroundings['parent']) =>
  chain.every((pid, i) => i === chain.length - 1 || parent(pid) === chain[i + 1]);

/** Field 4 of /proc/PID/stat; the name in field 2 may hold blanks and brackets. */
function parentOf(pid: number): number {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return 0;
  }
}

function wordsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
