/**
 * Starts a training as a process of its own and finds its run: the folder whose run.json names the process. The studio
 * may be closed meanwhile; the run is found again in its folder.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { wasAsked } from '../../exit-codes.ts';
import { openRun } from '../../runs/index.ts';
import type { StartAnswer } from '../api/train.ts';
import { argumentsOf } from '../commands/command-line.ts';
import type { JobHandle, Jobs } from '../commands/jobs.ts';
import { lastWords, type Processes } from '../commands/processes.ts';
import type { TrainVerb } from '../commands/verbs.ts';
import type { Catalogue } from '../runs/catalogue.ts';
import { Follower } from '../runs/console.ts';
import type { Values } from './check.ts';

const pollMs = 250;
/** How long an answer waits for the run's folder; the job goes on looking. */
const patienceMs = 2000;

export async function startTraining(
  verb: TrainVerb,
  values: Values,
  parts: { catalogue: Catalogue; jobs: Jobs; processes: Processes },
): Promise<StartAnswer> {
  const args = ['train', verb.name, ...argumentsOf(verb.schema, values)];
  const commandLine = parts.processes.shown(args);
  const { child, console: path } = parts.processes.detach(args);
  const handle = parts.jobs.begin({
    kind: 'train',
    title: `train ${verb.name}`,
    commandLine,
    cancel: () => child.kill('SIGINT'),
  });
  const lines = new Follower(path, 'start');
  let ended: number | null | undefined;
  child.on('error', (error) => handle.end('failed', { error: error.message }));
  child.on('exit', (code) => {
    ended = code ?? 1;
  });
  const watch = async () => {
    for (;;) {
      for (const line of lines.next()) handle.line(line);
      if (handle.job.runId === undefined) findRun(parts.catalogue, child.pid, handle);
      if (ended !== undefined) break;
      await sleep(pollMs, undefined, { ref: false });
    }
    for (const line of lines.next()) handle.line(line);
    if (handle.job.runId === undefined) {
      // A short run may have begun and ended since the list was last read.
      parts.catalogue.changed();
      findRun(parts.catalogue, child.pid, handle);
    }
    if (ended === 0) handle.end('done');
    else if (wasAsked(ended)) handle.end('cancelled');
    else handle.end('failed', { error: lastWords(handle.job.lines) });
  };
  watch().catch((failure) => handle.end('failed', { error: (failure as Error).message }));
  const end = performance.now() + patienceMs;
  while (handle.job.runId === undefined && handle.job.state === 'running' && performance.now() < end)
    await sleep(pollMs / 2);
  const { id, runId } = handle.job;
  return { jobId: id, commandLine, ...(runId === undefined ? {} : { runId }) };
}

function findRun(catalogue: Catalogue, pid: number | undefined, handle: JobHandle): void {
  const begun = new Date(handle.job.started).toISOString();
  const found = catalogue
    .all()
    .find((entry) => (entry.state === 'running' || entry.created > begun) && processOf(entry.path) === pid);
  if (found !== undefined) handle.found(catalogue.idOf(found));
}

/** Undefined where the run has been deleted since it was listed. */
function processOf(path: string): number | undefined {
  try {
    return openRun(path).info?.process?.pid;
  } catch {
    return undefined;
  }
}
