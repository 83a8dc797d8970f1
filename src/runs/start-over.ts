/**
 * Whether a run that exists may begin anew in its folder. Ranks and pods that are started again run the same command, and a run that ended
 * before its first checkpoint would refuse them for ever. Nothing may be lost by it: there is no checkpoint and no model, no file but
 * those that a run writes from its first step on, nobody writes it, and it was the same command with the same config. What its steps
 * measured is measured again.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { quoted } from '../shell.ts';
import { listCheckpoints } from './checkpoints.ts';
import { readJson } from './json-files.ts';
import { lockHolder, lockName } from './lock.ts';
import { removeEvents } from './metrics/tensorboard.ts';

/** What the same steps write again; a checkpoint that was not written to its end. */
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

/** The command that deletes a run. `attune runs` touches nothing outside of the current folder unless told. */
export function deletion(folder: string): string {
  const whole = resolve(folder);
  const path = relative(process.cwd(), whole);
  const isBelow = path !== '' && !path.startsWith('..');
  return `attune runs delete ${isBelow ? quoted(path) : `${quoted(basename(whole))} --folder ${quoted(dirname(whole))}`}`;
}

/** Whether nothing of worth would be lost with a run: it has no checkpoint and no model, and nobody writes it. */
export const holdsNothing = (folder: string): boolean =>
  listCheckpoints(folder).length === 0 &&
  !['final', 'best_model'].some((name) => existsSync(join(folder, name))) &&
  !lockHolder(folder)?.isLive;

/** Removes what the earlier start has written. By whoever holds the run's lock. */
export function startOver(folder: string): void {
  forgetEvents(folder);
  for (const name of readdirSync(folder)) if (name !== lockName) rmSync(join(folder, name), { recursive: true });
}

/** Removes the TensorBoard files of a run that begins anew, wherever its `--log-dir` is: beside new ones its curves would be drawn twice. */
export function forgetEvents(folder: string): void {
  const info = readJson<{ logDir?: string; process?: { host: string; pid: number } }>(join(folder, 'run.json'));
  if (info?.logDir !== undefined && info.process !== undefined) removeEvents(info.logDir, info.process);
}
