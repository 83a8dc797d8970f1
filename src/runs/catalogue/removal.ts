/**
 * Deletes runs and checkpoints in two stages: a plan to show, then its removal. Only what was shown is deleted, never
 * through a link out of the folder, and never a run that is being written.
 *
 *     const plan = planRemoval(root, runs, { keepLast: 2 });
 *     if (typed === 'DELETE') remove(plan);
 */
import { lstatSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { UserError } from '../../errors.ts';
import { readJson } from '../json-files.ts';
import { heldError, lockHolder } from '../lock.ts';
import { bytesBelow, type RunEntry, type Snapshot } from './entry.ts';

export interface Doomed {
  path: string;
  bytes: number;
  /** The folder of its run. */
  run: string;
  /** The inode when the plan was shown. A folder with another inode is left alone. */
  inode: number;
  /** When the folder was created, because a new folder may reuse a deleted one's inode. */
  born: number;
}

export interface RemovalRules {
  /** Keeps the run and its newest step snapshots, this many; with 0, the one that it needs to resume, if any. */
  keepLast?: number;
  /** Keeps the run, best_model, and the snapshot of the best step, or the newest if no best step is known. */
  keepBest?: boolean;
}

/** Plans to delete whole runs with their logs or, with rules, the step snapshots that the rules do not keep. */
export function planRemoval(root: string, runs: readonly RunEntry[], rules: RemovalRules = {}): Doomed[] {
  const bySnapshot = rules.keepLast !== undefined || rules.keepBest === true;
  return runs.flatMap((run) => {
    const kept = keptSnapshots(run, rules).map(({ name }) => name);
    const paths = bySnapshot
      ? run.snapshots.filter(({ name }) => !kept.includes(name)).map(({ path }) => path)
      : [run.path, ...elsewhere(root, run)];
    return paths.map((path) => doomed(root, run.path, path));
  });
}

/** Plans to delete one named snapshot of a run, with its quantised copies. */
export function planSnapshot(root: string, run: RunEntry, name: string): Doomed {
  const found = run.snapshots.find((snapshot) => snapshot.name === name);
  if (found === undefined)
    throw new UserError(
      `${run.path} has no snapshot "${name}". It has: ${run.snapshots.map((each) => each.name).join(', ') || 'none'}.`,
    );
  return doomed(root, run.path, found.path);
}

/**
 * The snapshots that the rules keep: the newest and the best. If no best step is recorded (no evaluation, or
 * interrupted before the first), a run without a final model keeps its newest snapshot, `isSpared`.
 */
export function keptSnapshots(
  run: RunEntry,
  { keepLast = 0, keepBest = false }: RemovalRules,
): (Snapshot & { isSpared: boolean })[] {
  const steps = run.snapshots.filter(({ name }) => /-\d+$/.test(name));
  const newest = new Set(keepLast > 0 ? steps.slice(-keepLast) : []);
  const best = keepBest ? bestStep(steps) : undefined;
  const chosen = steps.filter((step) => newest.has(step) || (best !== undefined && step.name.endsWith(`-${best}`)));
  const isDone = run.state === 'finished' && run.snapshots.some(({ name }) => name === 'final');
  const spared = chosen.length === 0 && !isDone ? steps.at(-1) : undefined;
  return run.snapshots
    .filter((each) => !steps.includes(each) || chosen.includes(each) || each === spared)
    .map((each) => ({ ...each, isSpared: each === spared }));
}

/** The best step, according to the newest snapshot's state. */
function bestStep(steps: readonly Snapshot[]): number | undefined {
  for (const { path } of steps.toReversed()) {
    const state = readJson<{ best?: { step?: number } }>(join(path, 'trainer_state.json'));
    if (state !== undefined) return state.best?.step;
  }
  return undefined;
}

/**
 * Event files and rollouts of a run that are outside its folder. They are deleted with it if they are below the same
 * root, in a folder with the run's name. A rollouts folder must contain nothing else.
 */
function elsewhere(root: string, run: RunEntry): string[] {
  const database = readJson<{ rollouts?: string }>(join(run.path, 'run.json'))?.rollouts;
  const logs = ownFolder(root, run, run.logDir);
  const rollouts = database === undefined ? undefined : ownFolder(root, run, dirname(resolve(run.path, database)));
  const isAlone = rollouts !== undefined && readdirSync(rollouts).every((name) => name.startsWith('rollouts.db'));
  return [...new Set([...(logs === undefined ? [] : [logs]), ...(isAlone ? [rollouts] : [])])];
}

function ownFolder(root: string, run: RunEntry, folder: string | undefined): string | undefined {
  if (folder === undefined || !lstatSync(folder, { throwIfNoEntry: false })?.isDirectory()) return undefined;
  const real = realpathSync(folder);
  if (real === realpathSync(run.path) || isBelow(run.path, real) || !isBelow(realpathSync(root), real))
    return undefined;
  return basename(real) === run.name ? real : undefined;
}

function doomed(root: string, run: string, path: string): Doomed {
  const found = lstatSync(path);
  if (!found.isDirectory()) throw new UserError(`${path} is not a folder; links are not followed.`);
  if (!isBelow(realpathSync(root), realpathSync(path)))
    throw new UserError(`${path} lies outside of ${root} and is not deleted from there.`);
  const lock = lockHolder(run);
  if (lock?.isLive) throw heldError(run, lock);
  return { path, bytes: bytesBelow(path), run, inode: found.ino, born: found.birthtimeMs };
}

const isBelow = (root: string, path: string) => {
  const way = relative(root, path);
  return way !== '' && way !== '..' && !way.startsWith(`..${sep}`);
};

/**
 * Deletes what was planned. Folders that changed since (replaced, or being written again) are kept and listed in the
 * result.
 */
export function remove(plan: readonly Doomed[]): { removed: Doomed[]; left: { path: string; why: string }[] } {
  const removed: Doomed[] = [];
  const left: { path: string; why: string }[] = [];
  for (const each of plan) {
    const found = lstatSync(each.path, { throwIfNoEntry: false });
    if (found === undefined) left.push({ path: each.path, why: 'it is gone already' });
    else if (
      found.ino !== each.inode ||
      found.birthtimeMs !== each.born ||
      !found.isDirectory() ||
      realpathSync(dirname(each.path)) !== dirname(each.path)
    )
      left.push({ path: each.path, why: 'it is not the folder that was shown' });
    else if (lockHolder(each.run)?.isLive) left.push({ path: each.path, why: 'its run is being written' });
    else {
      try {
        // A link inside is removed, but not its target.
        rmSync(each.path, { recursive: true });
        removed.push(each);
      } catch (error) {
        left.push({ path: each.path, why: whyNotRemoved(error as NodeJS.ErrnoException) });
      }
    }
  }
  return { removed, left };
}

/** rmSync gives no code for most system errors. The message has the system's text. */
function whyNotRemoved({ code, message }: NodeJS.ErrnoException): string {
  if (code === 'EROFS' || /read-only file system/i.test(message)) return 'the file system is read-only';
  if (code === 'EACCES' || code === 'EPERM' || /permission denied|not permitted/i.test(message))
    return 'no permission to delete it';
  return message;
}
