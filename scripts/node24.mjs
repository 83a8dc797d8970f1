/**
 * Finds the Node that attune needs (24: type stripping, node:sqlite, `using`) when the machine's own is older: the
 * optional dependency node-linux-<arch> is a whole Node and comes with the packages.
 */
import { spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, realpathSync } from 'node:fs';
import { constants, devNull } from 'node:os';
import { dirname, join } from 'node:path';
import { isatty } from 'node:tty';

export const NODE_MAJOR = 24;

/** The folder of an installed package, looked up as Node does: node_modules here, then in each folder above. */
export function findPackage(root, name) {
  for (let folder = realpathSync(root); ; folder = dirname(folder)) {
    const found = join(folder, 'node_modules', name);
    if (existsSync(join(found, 'package.json'))) return found;
    if (dirname(folder) === folder) return undefined;
  }
}

/** This process's Node when it is new enough, else the one among the packages, else undefined. */
export function modernNode(root, version = process.versions.node) {
  if (Number.parseInt(version, 10) >= NODE_MAJOR) return process.execPath;
  const folder = findPackage(root, `node-linux-${process.arch}`);
  const node = folder && join(folder, 'bin/node');
  return node && existsSync(node) ? node : undefined;
}

export const NO_NODE = `attune needs Node ${NODE_MAJOR} and this is Node ${process.versions.node}.
Usually npm brings a local one along (node-linux-${process.arch}); install without --omit=optional, or install Node ${NODE_MAJOR} yourself.`;

/** Runs a script in another Node as if it were this process: same terminal, signals passed on, its exit code returned. */
export function runNode(node, args, options = {}) {
  return new Promise((resolve, reject) => {
    const terminals = [0, 1, 2].filter((descriptor) => isatty(descriptor));
    // The script ends when this process is killed (src/cli/machine/wrapper.ts).
    const env = { ...(options.env ?? process.env), ATTUNE_WRAPPER: String(process.pid) };
    const child = spawn(node, args, { stdio: 'inherit', ...options, env });
    // Ctrl-C in a terminal reaches both processes, `kill -INT` and npm only this one: the script takes what comes within a
    // second for one (src/cli/terminal/interrupt.ts), decides what it means, and this process waits for it.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
    child.on('error', reject);
    child.on('close', (status, signal) => {
      leaveClosed(terminals);
      resolve(status ?? 128 + (constants.signals[signal] ?? 1));
    });
  });
}

/**
 * Before it exits, Node gives a terminal back the mode that it found; Node 20 aborts (SIGABRT) where the terminal has been
 * closed meanwhile. A descriptor that is another file by then is left alone.
 */
function leaveClosed(terminals) {
  for (const descriptor of terminals) {
    if (isatty(descriptor)) continue;
    closeSync(descriptor);
    openSync(devNull, 'r+'); // takes the lowest free number, which is the one just closed
  }
}
