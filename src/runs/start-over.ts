/**
 * Whether an existing run may start over in its folder. Restarted ranks and pods run the same command again, and a run
 * that ended before its first checkpoint would otherwise block them for good. Nothing may be lost: the folder has no
 * checkpoint, no model, and no files but those that a run writes from its first step. No process writes it, and command
 * and config are the same. The metrics of its steps are measured again.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { quoted } from '../shell.ts';
import { listCheckpoints } from './checkpoints.ts';
import { readJson } from './json-files.ts';
import { lockHolder, lockName } from './lock.ts';
import { removeEvents } from './metrics/tensorboard.ts';

/** Files that the same steps write again, and checkpoints left incomplete. */
const madeAgain = new RegExp(
  `^(${lockName}.*|(run|config|versions|training_history)\\.json(\\.\\d+\\.part)?|metrics\\.jsonl|train\\.log|tensorboard|rollouts\\.db(-\\w+)?|training_curves\\.png|\\.tmp-.*)$`,
);

export function mayStartOver(folder: string, run: { command: string; config: Record<string, unknown> }): boolean {
  if (!readdirSync(folder).every((name) => madeAgain.test(name))) return false;
  if (lockHolder(folder)?.isLive) return false;
  const info = readJson<{ command?: string; status?: string }>(join(folder, 'run.json'));
  if (info !== undefined && (info.command !== run.command || info.status === 'finished')) return false;
  const config = readJson<Record<string, unknown>>(join(folder, 'config.json'));
  return config === undefined || isDeepStrictEqual(config, JSON.parse(JSON.stringify(run.config)));
}

/** The command that deletes a run. By default `attune runs` touches nothing outside the current folder. */
export function deletion(folder: string): string {
  const whole = resolve(folder);
  const path = relative(process.cwd(), whole);
  const isBelow = path !== '' && !path.startsWith('..');
  return `attune runs delete ${isBelow ? quoted(path) : `${quoted(basename(whole))} --folder ${quoted(dirname(whole))}`}`;
}

/** Whether deleting a run loses nothing of value: it has no checkpoint and no model, and no process writes it. */
export const holdsNothing = (folder: string): boolean =>
  listCheckpoints(folder).length === 0 &&
  !['final', 'best_model'].some((name) => existsSync(join(folder, name))) &&
  !lockHolder(folder)?.isLive;

/** Removes the files of the earlier start. The caller must hold the run's lock. */
export function startOver(folder: string): void {
  forgetEvents(folder);
  for (const name of readdirSync(folder)) if (name !== lockName) rmSync(join(folder, name), { recursive: true });
}

/**
 * Removes the TensorBoard files of a run that starts over, wherever its `--log-dir` is. Next to new files its curves
 * would be drawn twice.
 */
export function forgetEvents(folder: string): void {
  const info = readJson<{ logDir?: string; process?: { host: string; pid: number } }>(join(folder, 'run.json'));
  if (info?.logDir !== undefined && info.process !== undefined) removeEvents(info.logDir, info.process);
}
