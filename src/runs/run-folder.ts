/** The folder of a new run: the names available, and how one is claimed. */
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { UserError } from '../errors.ts';
import { makeFolder } from '../folder.ts';
import { quoted } from '../shell.ts';
import { listCheckpoints } from './checkpoints.ts';
import { deletion, holdsNothing, mayStartOver } from './start-over.ts';

export interface FolderChoice {
  outputDir: string;
  /** Default: the date and time. */
  runName?: string;
  rolloutsDir?: string;
  /** What to do if a run of this name exists. Pipelines reuse `<output_dir>/<model>`. */
  existing?: 'refuse' | 'reuse';
  /** A prefix to the date and time of a run without a name. */
  prefix?: string;
  /** The command and config of a run that may have been started before. */
  again?: { command: string; config: Record<string, unknown> };
}

const longestName = 255; // NAME_MAX of the file systems in use

/** Checks a new run's folder before anything is created. */
export function checkNewRun(options: FolderChoice): void {
  const { outputDir, runName, existing, again } = options;
  if (runName === undefined) return;
  if (!/^[^/\\]+$/.test(runName) || /^\.+$/.test(runName))
    throw new UserError(`--run-name "${runName}" cannot be a run's name: it must be a single folder name.`);
  if (Buffer.byteLength(runName) > longestName)
    throw new UserError(
      `--run-name "${runName.slice(0, 40)}…" cannot be a run's name: it has ${Buffer.byteLength(runName)} bytes, and a folder's name has at most ${longestName}.`,
    );
  if (/^-|[\p{Cc}\p{Cf}\u2028\u2029]/u.test(runName))
    throw new UserError(
      `--run-name ${JSON.stringify(runName)} cannot be a run's name: it begins with "-", or has a control character, and commands could not be given it.`,
    );
  const folder = join(outputDir, runName);
  if (!existsSync(folder)) {
    checkNewRollouts(options);
    return;
  }
  if (!statSync(folder).isDirectory())
    throw new UserError(`--run-name ${runName}: ${folder} is a file. Choose another --run-name.`);
  if (existing === 'reuse') return;
  if (again !== undefined && mayStartOver(folder, again)) return;
  if (isRunFolder(folder) && holdsNothing(folder))
    throw new UserError(
      `The run ${folder} exists, and has no checkpoint to go on from. Choose another --run-name, or delete it with: ${deletion(folder)}`,
    );
  const resume = listCheckpoints(folder).length > 0 ? `, or go on with --resume-from ${quoted(folder)}` : '';
  throw new UserError(`The run ${folder} exists. Choose another --run-name${resume}.`);
}

/**
 * An existing database elsewhere may belong to a deleted run of the same name or to another run, and would mix their
 * rollouts.
 */
function checkNewRollouts({ rolloutsDir, runName, existing, again }: FolderChoice): void {
  if (rolloutsDir === undefined || runName === undefined || existing === 'reuse' || again !== undefined) return;
  const path = join(rolloutsDir, runName, 'rollouts.db');
  if (!existsSync(path)) return;
  throw new UserError(
    `--rollouts-dir ${rolloutsDir}: ${path} holds the rollouts of another run "${runName}". Choose another --run-name or --rollouts-dir, or delete that file.`,
  );
}

/**
 * `mkdir` without `recursive` fails if the folder exists, so two runs that start in the same second get different
 * folders.
 */
export function claimFolder(options: FolderChoice): string {
  checkNewRun(options);
  makeFolder(resolve(options.outputDir));
  if (options.runName !== undefined) {
    const folder = join(options.outputDir, options.runName);
    if (!tryMkdir(folder) && options.existing !== 'reuse') checkNewRun(options);
    return folder;
  }
  const name = `${options.prefix ?? ''}${dateTimeName(new Date())}`;
  for (let attempt = 1; ; attempt++) {
    const folder = join(options.outputDir, attempt === 1 ? name : `${name}-${attempt}`);
    if (tryMkdir(folder)) return folder;
  }
}

function tryMkdir(folder: string): boolean {
  try {
    mkdirSync(folder);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** `2026-11-15_01-50-00`, local time. */
export function dateTimeName(date: Date): string {
  const two = (value: number) => String(value).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}_${two(date.getHours())}-${two(date.getMinutes())}-${two(date.getSeconds())}`;
}

export const isRunFolder = (folder: string) =>
  existsSync(join(folder, 'run.json')) || existsSync(join(folder, 'metrics.jsonl'));
