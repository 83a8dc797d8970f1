/**
 * A run's folder: its config, versions, metrics, checkpoints and rollouts.
 *
 *     const run = await createRun({ command: 'train reward', outputDir: './checkpoints/rm', logDir: './logs/rm', config });
 *     run.metrics.row(1, { 'train/loss': 0.69 });
 *     await run.finish('finished');
 *
 *     <output_dir>/<run>/   run.json config.json versions.json metrics.jsonl step-N/ final/ best_model/ rollouts.db
 *     <log_dir>/<run>/      TensorBoard event files (inside the run folder, in tensorboard/, when there is no log_dir)
 */
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../errors.ts';
import { makeFolder } from '../folder.ts';
import { cleanStale, supersedeAfter } from './checkpoints.ts';
import { redact, withoutSecrets } from './config/secrets.ts';
import { readJson, writeJson, writeWhole } from './json-files.ts';
import { lockRun, type RunLock } from './lock.ts';
import { JsonlMetrics, type MetricSink, Metrics, readMetrics, trainingHistory } from './metrics/metrics.ts';
import { TensorBoardMetrics } from './metrics/tensorboard.ts';
import { openWandb } from './metrics/wandb.ts';
import { trainingCurves } from './plots/plots.ts';
import { claimFolder, type FolderChoice } from './run-folder.ts';
import { forgetEvents, startOver } from './start-over.ts';
import { copyRollouts } from './store/copy.ts';
import { RolloutStore } from './store/rollouts.ts';
import { versions } from './versions.ts';

export type RunStatus = 'running' | 'finished' | 'interrupted' | 'failed';

/** `run.json`: what a list of runs needs. */
export interface RunInfo {
  name: string;
  command: string;
  status: RunStatus;
  created: string;
  ended?: string;
  /** Number of steps taken. */
  step: number;
  /** The planned number of steps. */
  totalSteps?: number;
  logDir: string;
  /** Its rollout database: a name in the run's folder, or a path elsewhere. */
  rollouts?: string;
  /** The reason for a failure. */
  reason?: string;
  /** The process that writes it. If that no longer exists, the run was killed, whatever its status says. */
  process: { host: string; pid: number };
  /** The folder in which it was started. Relative paths in its config refer to it. */
  cwd?: string;
}

export interface RunOptions extends Pick<FolderChoice, 'outputDir' | 'runName' | 'rolloutsDir' | 'existing'> {
  /** For example `train reward`. */
  command: string;
  logDir?: string;
  /** The saved config (`savedConfig(schema, config)`). */
  config: Record<string, unknown>;
  seed?: number;
  /** `tensorboard`, `wandb`. metrics.jsonl is always written. */
  reportTo?: readonly string[];
  wandbProject?: string;
  /** Draws `training_curves.png` at the end; default true. */
  curves?: boolean;
  /** Continues in an existing run folder after this step. */
  resume?: { run: string; step: number };
  /** The command may have run before. A run that it left without a checkpoint starts over (start-over.ts). */
  isAgain?: boolean;
}

export class Run {
  readonly folder: string;
  readonly metrics: Metrics;
  readonly resumedAt: number | undefined;
  readonly #rolloutsPath: string;
  readonly #keptTo: number | undefined;
  readonly #curves: boolean;
  readonly #lock: RunLock;
  readonly #before: RunInfo | undefined;
  readonly #follows: boolean;
  #info: RunInfo;
  #rollouts: Promise<RolloutStore> | undefined;

  constructor(
    folder: string,
    info: RunInfo,
    metrics: Metrics,
    options: {
      rolloutsPath: string;
      lock: RunLock;
      resumedAt?: number;
      keptTo?: number;
      curves?: boolean;
      /** The content of run.json before this process opened the run. */
      before?: RunInfo;
      /** Another process writes the run. This one only knows its folder. */
      follows?: boolean;
    },
  ) {
    this.folder = folder;
    this.metrics = metrics;
    this.resumedAt = options.resumedAt;
    this.#info = info;
    this.#rolloutsPath = options.rolloutsPath;
    this.#keptTo = options.keptTo;
    this.#curves = options.curves ?? true;
    this.#lock = options.lock;
    this.#before = options.before;
    this.#follows = options.follows ?? false;
    this.#save();
  }

  get name(): string {
    return this.#info.name;
  }
  get info(): Readonly<RunInfo> {
    return this.#info;
  }

  /** Whether it had finished when this process opened it. */
  get wasFinished(): boolean {
    return this.#before?.status === 'finished';
  }

  path(...parts: string[]): string {
    return join(this.folder, ...parts);
  }

  /** The rollout database, opened at the first call. */
  rollouts(): Promise<RolloutStore> {
    if (!this.#rollouts) {
      // A database in the run's folder is stored by a relative name, so that the folder can be moved; one elsewhere by
      // its path.
      const own = dirname(resolve(this.#rolloutsPath)) === resolve(this.folder);
      if (this.#info.rollouts !== undefined)
        copyRollouts(resolve(this.folder, this.#info.rollouts), this.#rolloutsPath);
      this.#info = { ...this.#info, rollouts: own ? basename(this.#rolloutsPath) : resolve(this.#rolloutsPath) };
      this.#save();
      this.#rollouts = RolloutStore.open(this.#rolloutsPath, { resumedAt: this.#keptTo });
    }
    return this.#rollouts;
  }

  writeJson(name: string, value: unknown): void {
    if (this.#follows) return;
    writeJson(this.path(name), withoutSecrets(value));
  }

  /** Syncs everything to disk, so that a checkpoint is never ahead of the metrics beside it. */
  async flush(): Promise<void> {
    this.#lock.check();
    await this.metrics.flush();
    await (await this.#rollouts)?.flush();
  }

  /** Records the planned number of steps. */
  planned(totalSteps: number): void {
    this.#info = { ...this.#info, totalSteps };
    this.#save();
  }

  reached(step: number): void {
    this.#lock.check();
    this.#info = { ...this.#info, step };
    this.#save();
  }

  /** Closes the run and writes `training_history.json` and `training_curves.png` from its metrics. */
  async finish(status: Exclude<RunStatus, 'running'>, reason?: string): Promise<void> {
    if (this.#info.status !== 'running' || this.#follows) return;
    using lock = this.#lock;
    this.#info = { ...this.#info, status };
    this.metrics.ended(status);
    await this.metrics.close();
    // If the database could not be opened, its opener got the error.
    await (await this.#rollouts?.catch(() => undefined))?.close();
    lock.check();
    if (status === 'failed' && this.#untouched) return this.#giveBack();
    this.#info = {
      ...this.#info,
      ended: new Date().toISOString(),
      ...(reason ? { reason: redact(reason) } : {}),
    };
    this.#save();
    const rows = readMetrics(this.path('metrics.jsonl'));
    if (rows.length === 0) return;
    writeWhole(this.path('training_history.json'), `${JSON.stringify(trainingHistory(rows))}\n`);
    if (this.#curves) writeWhole(this.path('training_curves.png'), await trainingCurves(rows));
  }

  /** Whether a resumed run failed before its first step. Its run.json then stays unchanged. */
  get #untouched(): boolean {
    return this.#before !== undefined && this.resumedAt !== undefined && this.#info.step === this.resumedAt;
  }
  #giveBack(): void {
    const { status, ...before } = this.#before as RunInfo;
    this.#info = { ...before, status: status === 'running' ? 'interrupted' : status };
    this.#save();
  }

  #save(): void {
    if (this.#follows) return;
    writeJson(this.path('run.json'), this.#info);
  }
}

/** Rank 0's run as seen by the other ranks, which write nothing. */
export function followRun(folder: string, command: string): Run {
  const nobody: RunLock = { check() {}, release() {}, [Symbol.dispose]() {} };
  const info: RunInfo = {
    name: basename(folder),
    command,
    status: 'running',
    created: new Date().toISOString(),
    step: 0,
    logDir: folder,
    process: { host: hostname(), pid: process.pid },
  };
  return new Run(folder, info, new Metrics([]), {
    rolloutsPath: join(folder, 'rollouts.db'),
    lock: nobody,
    follows: true,
  });
}

export async function createRun(options: RunOptions): Promise<Run> {
  const { command, config, isAgain = false } = options;
  const choice = {
    ...options,
    ...(isAgain ? { again: { command, config: withoutSecrets(config) as typeof config } } : {}),
  };
  const folder = options.resume
    ? options.resume.run
    : naming('--output-dir', options.outputDir, () => claimFolder(choice));
  const lock = naming('--output-dir', folder, () => lockRun(folder, command));
  try {
    if (!options.resume && options.existing === 'reuse') forgetEvents(folder);
    else if (!options.resume && isAgain) startOver(folder);
    return await openLocked(folder, lock, options);
  } catch (error) {
    lock.release();
    throw error;
  }
}

async function openLocked(folder: string, lock: RunLock, options: RunOptions): Promise<Run> {
  const resumedAt = options.resume?.step;
  const name = basename(resolve(folder));
  if (options.resume) supersedeAfter(folder, options.resume.step);
  cleanStale(folder);
  const logDir = options.logDir ? join(options.logDir, name) : join(folder, 'tensorboard');
  const rolloutsPath = options.rolloutsDir
    ? join(options.rolloutsDir, name, 'rollouts.db')
    : join(folder, 'rollouts.db');
  const config = withoutSecrets(options.config) as Record<string, unknown>;
  writeJson(join(folder, 'config.json'), config);
  writeJson(join(folder, 'versions.json'), await versions(options.seed));

  // In a reused folder, the earlier run's rows are dropped.
  const keptTo = resumedAt ?? (options.existing === 'reuse' || options.isAgain ? -1 : undefined);
  const sinks: MetricSink[] = [new JsonlMetrics(join(folder, 'metrics.jsonl'), { resumedAt: keptTo })];
  const reportTo = options.reportTo ?? ['tensorboard'];
  if (reportTo.includes('tensorboard')) {
    const examplesAt = options.resume
      ? readMetrics(join(folder, 'metrics.jsonl')).at(-1)?.['train/examples']
      : undefined;
    sinks.push(
      naming('--log-dir', logDir, () => {
        makeFolder(resolve(logDir));
        const events = new TensorBoardMetrics(logDir, { resumedAt, examplesAt });
        events.settings(config, name);
        return events;
      }),
    );
  }
  if (reportTo.includes('wandb')) {
    const project = options.wandbProject ?? process.env.WANDB_PROJECT ?? 'attune';
    const wandb = await openWandb({ project, name, config, resumedAt });
    if (wandb) sinks.push(wandb);
  }
  const before = readJson<RunInfo>(join(folder, 'run.json'));
  const info: RunInfo = {
    name,
    command: options.command,
    status: 'running',
    created: before?.created ?? new Date().toISOString(),
    step: resumedAt ?? 0,
    logDir: resolve(logDir),
    ...(options.resume && before?.rollouts !== undefined ? { rollouts: before.rollouts } : {}),
    process: { host: hostname(), pid: process.pid },
    cwd: process.cwd(),
  };
  const { curves } = options;
  return new Run(folder, info, new Metrics(sinks), { rolloutsPath, lock, resumedAt, keptTo, curves, before });
}

/** Adds the name of the option that gave the path to a file system error. */
function naming<T>(option: string, path: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    // A folder that cannot be made is already a UserError, but that does not name the option.
    const { code } = ((error as Error).cause ?? error) as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    throw new UserError(`${option} ${path} cannot be written: ${reasons[code] ?? (error as Error).message}.`);
  }
}

const reasons: Record<string, string> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENOTDIR: 'a part of the path is a file',
  EEXIST: 'a part of the path is a file',
  ENOENT: 'the system allows no folder there',
  ENOSPC: 'the disk is full',
  ENAMETOOLONG: 'the name is too long',
};
