/** The commands of a launch that is started again after a failure (`attune launch --max-restarts`). */
import { existsSync, rmSync } from 'node:fs';
import { basename } from 'node:path';
import type { RunFolder } from '../../dist/beat.ts';
import { listCheckpoints } from '../../runs/checkpoints.ts';
import { deletion, forgetEvents } from '../../runs/start-over.ts';
import { quoted } from '../../shell.ts';

export class Attempts {
  readonly #command: readonly string[];
  #folder: RunFolder | undefined;

  constructor(command: readonly string[]) {
    this.#command = command;
  }

  /**
   * The command after an attempt that failed, in the folder that it told of. It goes on from the run's last checkpoint; a run without one
   * begins anew in its place. An attempt that ended before it told of a folder was at that of the attempts before it.
   */
  after(folder: RunFolder | undefined): string[] {
    const known = this.#remember(folder);
    if (known === undefined) return [...this.#command];
    // A pipeline has many runs, and finds by itself which of them to go on with.
    if (isPipeline(this.#command)) return [...this.#command.filter((arg) => arg !== '--resume'), '--resume'];
    const { path, isNew } = known;
    if (listCheckpoints(path).length > 0)
      return [...withoutOption(this.#command, '--resume-from'), '--resume-from', path];
    if (isNew && existsSync(path)) {
      forgetEvents(path);
      rmSync(path, { recursive: true });
    }
    return [...this.#command];
  }

  /** How the command goes on from the run's last checkpoint, or begins anew without one, in words; undefined where there is no run. */
  wayOn(folder: RunFolder | undefined): string | undefined {
    const known = this.#remember(folder);
    if (known === undefined) return undefined;
    const last = listCheckpoints(known.path).at(-1)?.path;
    if (isPipeline(this.#command))
      return last === undefined
        ? `${known.path} has no checkpoint; the same command with --resume goes on with the models that are not finished`
        : `the last checkpoint is ${last}; the same command with --resume goes on from it`;
    if (last === undefined) return known.isNew && existsSync(known.path) ? wayAnew(known.path) : undefined;
    return `the last checkpoint is ${last}; the same command with --resume-from ${quoted(known.path)} goes on from it`;
  }

  #remember(folder: RunFolder | undefined): RunFolder | undefined {
    // A folder that an earlier attempt made is not new to those that go on in it, and is still this launch's.
    const isNew = folder?.isNew || (this.#folder?.isNew && folder?.path === this.#folder.path) || false;
    if (folder !== undefined) this.#folder = { path: folder.path, isNew };
    return this.#folder;
  }
}

/** A run whose name is the time of its start is no hindrance to the next. */
const wayAnew = (path: string) =>
  /^\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(-\d+)?$/.test(basename(path))
    ? `${path} has no checkpoint to go on from; the same command begins anew, in another folder`
    : `${path} has no checkpoint to go on from; before a run can have its name again, delete it with: ${deletion(path)}`;

const isPipeline = (command: readonly string[]) =>
  command.some((arg) => /^--config(=|$)/.test(arg)) && (command[1] ?? '').startsWith('-');

function withoutOption(command: readonly string[], name: string): string[] {
  const spellings = [name, name.replaceAll('-', '_').replace(/^__/, '--')];
  return command.filter(
    (arg, i) => !spellings.includes(arg.split('=')[0] as string) && !spellings.includes(command[i - 1] as string),
  );
}
