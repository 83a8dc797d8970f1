/**
 * Goes on with a run in a process of its own. The answer waits until that process writes the run, or has ended with a reason:
 * a page that was told "resumed" too early would wait for ever for a process that is gone.
 */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { lockHolder, openRun } from '../../runs/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { ResumeAnswer } from '../api/runs.ts';
import { lastWords, type Processes } from '../commands/processes.ts';
import type { Above } from '../commands/verbs.ts';
import type { Catalogue } from './catalogue.ts';
import { Follower } from './console.ts';
import { isSaved } from './detail.ts';

export const conflict = (message: string) => new ApiError(409, message, { code: 'conflict' });

const pollMs = 100;

export interface Patience {
  /** A run that was stopped says so before it has drawn its curves; until then no other process may write it. */
  forOldMs?: number;
  /** A process starts, and a model is loaded, slowly on a machine with much to do. */
  forNewMs?: number;
}

export async function resumeRun(
  catalogue: Pick<Catalogue, 'changed' | 'idOf'>,
  entry: RunEntry,
  above: Pick<Above, 'verbs'>,
  processes: Pick<Processes, 'detach' | 'shown'>,
  { forOldMs = 60_000, forNewMs = 120_000 }: Patience = {},
): Promise<ResumeAnswer> {
  const { command = '' } = openRun(entry.path).info ?? {};
  if (!above.verbs.some(({ name }) => command === `train ${name}`))
    throw conflict(`${entry.name} is no run that can be resumed from here.`);
  if (entry.state === 'running') throw conflict(`${entry.name} is running.`);
  if (!isSaved(entry)) throw conflict(`${entry.name} has saved no checkpoint to go on from.`);
  const isFree = await waited(() => lockHolder(entry.path)?.isLive !== true, forOldMs);
  if (!isFree) throw conflict(`${entry.name} is still being written by the process that it was stopped in: try again.`);
  const args = [...command.split(' '), '--resume-from', entry.path];
  const { child, console: path } = processes.detach(args);
  await begun(entry, child, path, forNewMs);
  catalogue.changed();
  return { runId: catalogue.idOf(entry), commandLine: processes.shown(args) };
}

/** Resolves when the process writes the run; rejects with its last words where it ended without. */
async function begun(
  { name, path }: RunEntry,
  child: ChildProcess,
  console: string,
  patienceMs: number,
): Promise<void> {
  const lines = new Follower(console, 'start');
  let ended: number | undefined;
  let failure: string | undefined;
  child.on('error', (error) => {
    ended = 1;
    failure = error.message;
  });
  child.on('exit', (code) => {
    ended = code ?? 1;
  });
  const writes = () => child.pid !== undefined && lockHolder(path)?.holder.pid === child.pid; // no pid: it could not be started
  await waited(() => ended !== undefined || writes(), patienceMs);
  if (ended === undefined || ended === 0) return;
  throw conflict(`${name} was not resumed: ${failure ?? lastWords(lines.next())}`);
}

/** Whether it came true in time. */
async function waited(isTrue: () => boolean, patienceMs: number): Promise<boolean> {
  for (const end = performance.now() + patienceMs; !isTrue(); await sleep(pollMs))
    if (performance.now() > end) return false;
  return true;
}
