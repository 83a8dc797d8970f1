/**
 * Starts `attune` as a process of its own. A training is detached and writes its console to a file, so that the studio
 * may be closed and opened again; other work is read through pipes and ends with the studio.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { makeFolder } from '../../folder.ts';
import { ApiError } from '../../serve/api-error.ts';
import { quoted } from '../../shell.ts';
import type { Job } from '../api/models.ts';
import type { JobHandle, Jobs } from './jobs.ts';
import type { Launcher } from './verbs.ts';

export interface ProcessesOptions {
  launcher: Launcher | undefined;
  /** How users type it, for command lines that are shown. */
  attune: string;
  /** Folder for consoles of trainings. */
  cache: string;
}

/** Where the processes of jobs are started; relative paths of their options start there too. */
const where = () => process.cwd();

export class Processes implements Disposable {
  readonly #options: ProcessesOptions;
  readonly #jobs: Jobs;
  readonly #children = new Set<ChildProcess>();

  constructor(options: ProcessesOptions, jobs: Jobs) {
    this.#options = options;
    this.#jobs = jobs;
  }

  get available(): boolean {
    return this.#options.launcher !== undefined;
  }

  shown(args: readonly string[]): string {
    return [this.#options.attune, ...args.map(quoted)].join(' ');
  }

  /** A server: a process that goes on until it is cancelled, and says its address when it answers. */
  serve(title: string, args: readonly string[]): JobHandle {
    const handle = this.run('serve', title, args);
    const stop = this.#jobs.watch(handle.job.id, ({ lines, result, state }) => {
      const url = lines.map((line) => / at (http:\/\/\S+)$/.exec(line)?.[1]).find((found) => found !== undefined);
      if (url !== undefined || state !== 'running') stop();
      if (url !== undefined && result === undefined) handle.offer({ url });
    });
    return handle;
  }

  /** A process whose end is the job's; `resultOf` reads what came out of its whole output. */
  run(
    kind: Job['kind'],
    title: string,
    args: readonly string[],
    resultOf: (output: string) => unknown = () => undefined,
  ): JobHandle {
    const { file, args: first, env } = this.#launcher();
    const child = spawn(file, [...first, ...args], {
      cwd: where(),
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    });
    this.#children.add(child);
    const handle = this.#jobs.begin({
      kind,
      title,
      commandLine: this.shown(args),
      cancel: () => child.kill('SIGTERM'),
    });
    let output = '';
    child.stdout?.on('data', (piece) => {
      output += piece;
    });
    for (const stream of [child.stdout, child.stderr])
      createInterface({ input: stream as Readable }).on('line', (line) => handle.line(line));
    child.on('error', (error) => handle.end('failed', { error: error.message }));
    child.on('close', (code, signal) => {
      this.#children.delete(child);
      if (code === 0) handle.end('done', { result: safely(() => resultOf(output)) });
      else if (signal !== null) handle.end('cancelled');
      else handle.end('failed', { error: lastWords(handle.job.lines) });
    });
    return handle;
  }

  /** A process that outlives the studio. Returns it and the file of its console. */
  detach(args: readonly string[]): { child: ChildProcess; console: string } {
    const { file, args: first, env } = this.#launcher();
    makeFolder(this.#options.cache);
    const path = join(this.#options.cache, `train-${Date.now()}-${process.pid}.log`);
    const log = openSync(path, 'ax', 0o600);
    try {
      const child = spawn(file, [...first, ...args], {
        cwd: where(),
        detached: true,
        stdio: ['ignore', log, log],
        env: { ...process.env, ...env },
      });
      child.unref();
      return { child, console: path };
    } finally {
      closeSync(log);
    }
  }

  [Symbol.dispose](): void {
    for (const child of this.#children) child.kill('SIGTERM');
  }

  #launcher(): Launcher {
    const { launcher } = this.#options;
    if (launcher === undefined)
      throw new ApiError(501, 'This studio cannot start processes: it was not opened by `attune studio`.', {
        code: 'unavailable',
      });
    return launcher;
  }
}

/** The lines that say why a command failed. */
export function lastWords(lines: readonly string[]): string {
  const at = lines.findLastIndex((line) => line.startsWith('attune: '));
  const told = at < 0 ? lines.slice(-3) : lines.slice(at);
  return told.join('\n').replace(/^attune: /, '') || 'It ended without saying why.';
}

function safely<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
