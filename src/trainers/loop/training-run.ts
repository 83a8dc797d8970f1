/**
 * A training that is set up and ready. Iterate over its steps, or call `finish`.
 *
 *     const run = await trainReward({ model: './base', dataset: 'pairs.jsonl' });
 *     for await (const step of run) console.log(step.step, step.metrics['train/loss']);
 *     run.folder; run.result;
 *
 * Leaving the loop early, or aborting the signal, saves a checkpoint that can be resumed.
 */
import { call, checkArguments, filledText, type Rule, signal } from '../../arguments.ts';
import type { DatasetSpec } from '../../data/index.ts';
import { AttuneError, checkNames, UserError } from '../../errors.ts';
import type { Model } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import type { Run, RunOptions } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { GivenData } from '../setup.ts';
import type { LoopOptions, TrainResult, TrainStep } from './loop.ts';

/** Options that only a program can pass: rows, callbacks, a signal. */
export interface TrainerOptions extends GivenData {
  signal?: AbortSignal;
  progress?: Progress;
  /** Called after each step, before an iterating program receives it. */
  onStep?: (step: TrainStep) => void | Promise<void>;
  /** Folder of the token cache; false for no cache. */
  cache?: string | false;
  /** Changes to the run's folder. `curves: false` writes no plots and no report. */
  run?: Partial<RunOptions>;
  checkpointName?: LoopOptions['checkpointName'];
  worksAhead?: LoopOptions['worksAhead'];
}

const optionNames: Record<keyof TrainerOptions, true> = {
  ...{ dataset: true, evalDataset: true, signal: true, progress: true, onStep: true, cache: true, run: true },
  ...{ checkpointName: true, worksAhead: true },
};
const optionRules: Partial<Record<keyof TrainerOptions, Rule>> = {
  ...{ signal, onStep: call, checkpointName: call },
  progress: { fits: (value) => call.fits((value as Progress | null)?.start), wanted: 'an object with start' },
  cache: { fits: (value) => value === false || filledText.fits(value), wanted: 'a folder, or false for none' },
};

/** Checks the options before anything is loaded, instead of failing at a later step. */
export function checkTrainerOptions(trainer: string, options: TrainerOptions, own: readonly string[]): void {
  checkArguments(trainer, options, optionRules);
  checkNames(trainer, options, [...Object.keys(optionNames), ...own]);
}

export interface TrainingParts {
  /** `trainLoop(task, options)`. It starts when the first step is requested. */
  steps: AsyncGenerator<TrainStep, TrainResult, void>;
  totalSteps: number;
  run: Run;
  model: Model;
  tokenizer: Tokenizer;
  onStep?: TrainerOptions['onStep'];
  /** Called after the last step unless interrupted. Writes reports. */
  after?: (result: TrainResult) => void | Promise<void>;
}

/** Closes a training and explains its errors. */
export interface TrainingEnd {
  /** Frees what only the training needs. */
  close: () => void | Promise<void>;
  /** Rewords an error for the program or command that started the training. */
  explain: (error: Error) => Promise<Error>;
}

/** A training that is set up: iterate over its steps, or call `finish`. */
export class TrainingRun implements AsyncIterable<TrainStep> {
  readonly #parts: TrainingParts;
  readonly #close: TrainingEnd['close'];
  readonly #explain: TrainingEnd['explain'];
  #started = false;
  #result: TrainResult | undefined;

  constructor(parts: TrainingParts, { close, explain }: TrainingEnd) {
    this.#parts = parts;
    this.#close = close;
    this.#explain = explain;
  }

  /** The run's folder. */
  get folder(): string {
    return this.#parts.run.folder;
  }
  /** The model in training. `dispose` frees it. */
  get model(): Model {
    return this.#parts.model;
  }
  get tokenizer(): Tokenizer {
    return this.#parts.tokenizer;
  }
  get totalSteps(): number {
    return this.#parts.totalSteps;
  }
  /** How the training ended; undefined before. */
  get result(): TrainResult | undefined {
    return this.#result;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TrainStep, void, void> {
    if (this.#started) throw new AttuneError('This run has been iterated already. Resume it from its checkpoint.');
    this.#started = true;
    const { steps, onStep, after } = this.#parts;
    try {
      for (let next = await steps.next(); ; next = await steps.next()) {
        if (next.done) {
          this.#result = next.value;
          if (next.value.ended !== 'interrupted') await after?.(next.value);
          return;
        }
        await onStep?.(next.value);
        yield next.value;
      }
    } catch (error) {
      // Errors outside the loop, such as a checkpoint that does not fit or a callback that throws.
      await steps.return(undefined as never);
      const explained = await this.#explain(error as Error);
      await this.#parts.run.finish('failed', explained.message).catch(() => {});
      throw explained;
    } finally {
      await steps.return(undefined as never);
      await this.#close();
    }
  }

  /** Trains to the end. */
  async finish(): Promise<TrainResult> {
    for await (const _ of this);
    return this.#result as TrainResult;
  }

  dispose(): void {
    this.#parts.model.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

type Rows = Exclude<DatasetSpec, string>;

/** A config in which datasets may also be rows in memory. */
export type ProgramConfig<Config> = Omit<Config, 'dataset' | 'evalDataset'> & {
  dataset?: string | Rows;
  evalDataset?: string | Rows;
};

/** Separates in-memory rows from the config. The config is validated and saved with the run. */
export function separateRows(
  config: object,
  given: GivenData = {},
): { flags: Record<string, unknown>; given: GivenData } {
  const flags: Record<string, unknown> = { ...config };
  if (flags.dryRun === true)
    throw new UserError(
      '--dry-run shows what the command line would do; a program that calls a trainer trains: leave it out.',
    );
  const rows: GivenData = { ...given };
  for (const name of ['dataset', 'evalDataset'] as const) {
    if (flags[name] === undefined || typeof flags[name] === 'string') continue;
    rows[name] = flags[name] as Rows;
    delete flags[name];
  }
  return { flags, given: rows };
}
