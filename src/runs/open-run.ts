/**
 * Reads a run from its folder, running or finished: for the studio, `attune runs`, evaluation and your own programs.
 *
 *     const run = openRun('checkpoints/rm/2026-11-15_01-50-00');
 *     run.metrics().at(-1)?.['train/loss'];
 */

import { existsSync, readdirSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { checkArgument, text } from '../arguments.ts';
import { suggestion, UserError } from '../errors.ts';
import { type CheckpointEntry, listCheckpoints } from './checkpoints.ts';
import { readJson } from './json-files.ts';
import { isAlive, lockHolder } from './lock.ts';
import { type MetricRow, readMetrics, trainingHistory } from './metrics/metrics.ts';
import type { RunInfo, RunStatus } from './run.ts';
import { isRunFolder } from './run-folder.ts';
import { openRollouts, type RolloutReader } from './store/rollouts.ts';

/** A run read from its folder. */
export class OpenRun {
  readonly folder: string;

  constructor(folder: string) {
    this.folder = resolve(folder);
  }

  get name(): string {
    return basename(this.folder);
  }
  get info(): RunInfo | undefined {
    return readJson<RunInfo>(join(this.folder, 'run.json'));
  }
  /** The status in run.json, or `killed` if that says running but no process writes the run. */
  get status(): RunStatus | 'killed' | 'unknown' {
    const { info } = this;
    if (!info) return 'unknown';
    if (info.status !== 'running') return info.status;
    const lock = lockHolder(this.folder);
    // Runs from before locks existed only name the process.
    const isGone = lock ? !lock.isLive : info.process?.host !== hostname() || !isAlive(info.process.pid);
    return isGone ? 'killed' : 'running';
  }
  get config(): Record<string, unknown> {
    return readJson(join(this.folder, 'config.json')) ?? {};
  }
  get versions(): Record<string, unknown> {
    return readJson(join(this.folder, 'versions.json')) ?? {};
  }

  metrics(): MetricRow[] {
    return readMetrics(join(this.folder, 'metrics.jsonl'));
  }
  history(): ReturnType<typeof trainingHistory> {
    return trainingHistory(this.metrics());
  }

  /** Step checkpoints, then `best_model` and `final` if present. */
  checkpoints(): (Omit<CheckpointEntry, 'step'> & { step?: number })[] {
    const named = ['best_model', 'final']
      .map((name) => ({ name, path: join(this.folder, name) }))
      .filter(({ path }) => existsSync(path));
    return [...listCheckpoints(this.folder), ...named];
  }

  /** The path of the rollout database; undefined if none was stored. */
  get rolloutsPath(): string | undefined {
    const path = resolve(this.folder, this.info?.rollouts ?? 'rollouts.db');
    return existsSync(path) ? path : undefined;
  }
  rollouts(): RolloutReader {
    return openRollouts(this.rolloutsPath ?? join(this.folder, 'rollouts.db'));
  }

  sizeBytes(): number {
    return folderBytes(this.folder);
  }
}

/** Opens a run's folder for reading. */
export function openRun(folder: string): OpenRun {
  checkArgument("A run's folder", folder, text);
  if (isRunFolder(folder)) return new OpenRun(folder);
  const parent = resolve(folder, '..');
  const known = existsSync(parent) ? listRuns(parent).map((run) => run.name) : [];
  const fault = existsSync(folder)
    ? `${folder} is not a run folder: it has neither run.json nor metrics.jsonl.`
    : `There is no run folder ${folder}.`;
  throw new UserError(`${fault}${suggestion(basename(folder), known)}`);
}

/** Runs under a folder, newest first. */
export function listRuns(outputDir: string): OpenRun[] {
  if (!existsSync(outputDir)) return [];
  const created = (run: OpenRun) => run.info?.created ?? statSync(run.folder).mtime.toISOString();
  return readdirSync(outputDir, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && isRunFolder(join(outputDir, entry.name)))
    .map((entry) => new OpenRun(join(outputDir, entry.name)))
    .sort((a, b) => created(b).localeCompare(created(a)) || b.name.localeCompare(a.name));
}

/** Bytes of all files below a folder. Files deleted meanwhile are ignored. */
export function folderBytes(folder: string): number {
  let total = 0;
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) total += statSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false })?.size ?? 0;
  }
  return total;
}
