/**
 * A training that starts when it is awaited or iterated. `trainReward` and the other trainers return one.
 *
 *     const { folder } = await trainReward({ model: './base', dataset: 'pairs.jsonl' });           // trains to the end
 *     for await (const { step, train, eval: held } of trainReward({ … })) console.log(step, train.loss, held?.accuracy);
 *
 * Leaving the loop early, or aborting the signal, saves a checkpoint that can be resumed. The model is freed at the
 * end. To use it afterwards, open the run: `using run = await trainReward({ … }).open()`.
 */
import { AttuneError } from '../../errors.ts';
import { type ConfigSchema, type ResolvedRun, resolveRun } from '../../runs/index.ts';
import { camelCase } from '../../spelling.ts';
import type { TrainResult, TrainStep } from './task.ts';
import { checkTrainerOptions, separateRows, type TrainerOptions, type TrainingRun } from './training-run.ts';

/** Metrics by name: those that every run of this kind has, and any others that it logs. */
export type Measured<Name extends string> = { readonly [name in Name]: number } & Readonly<Record<string, number>>;

/** A step, typed with the metrics that its kind of training always has. */
export interface StepOf<Train extends string, Held extends string> extends TrainStep {
  readonly train: Measured<Train | 'loss' | 'lr' | 'grad_norm' | 'epoch' | 'step_time'>;
  /** Metrics on held-out data, if the step was evaluated. */
  readonly eval?: Measured<Held>;
}

/** How a training ended, and the folder of its files. */
export interface TrainingResult extends TrainResult {
  folder: string;
}

/** A training that starts when it is awaited or iterated. */
export class Training<Step extends TrainStep = TrainStep> implements PromiseLike<TrainingResult>, AsyncIterable<Step> {
  readonly #start: () => Promise<TrainingRun>;
  #opened: Promise<TrainingRun> | undefined;
  #run: TrainingRun | undefined;
  #finished: Promise<TrainingResult> | undefined;

  constructor(start: () => Promise<TrainingRun>) {
    this.#start = start;
  }

  /** Sets the training up without starting it. The run holds its folder, model and tokenizer until it is disposed. */
  open(): Promise<TrainingRun> {
    this.#opened ??= this.#start().then((run) => {
      this.#run = run;
      return run;
    });
    return this.#opened;
  }

  /** The run's folder, once the run has begun. */
  get folder(): string {
    if (this.#run === undefined) throw new AttuneError('This training has not begun: await it, or iterate it.');
    return this.#run.folder;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Step, TrainingResult | undefined, void> {
    using run = await this.open();
    yield* run as AsyncIterable<Step>;
    return run.result === undefined ? undefined : { ...run.result, folder: run.folder };
  }

  // biome-ignore lint/suspicious/noThenProperty: awaiting a training trains
  then<Done = TrainingResult, Failed = never>(
    done?: ((result: TrainingResult) => Done | PromiseLike<Done>) | null,
    failed?: ((reason: unknown) => Failed | PromiseLike<Failed>) | null,
  ): Promise<Done | Failed> {
    return this.#finish().then(done, failed);
  }

  /** A finished training gives its result again, whether it was awaited or iterated. */
  async #finish(): Promise<TrainingResult> {
    if (this.#run?.result !== undefined) return { ...this.#run.result, folder: this.#run.folder };
    this.#finished ??= this.#train();
    return this.#finished;
  }

  async #train(): Promise<TrainingResult> {
    using run = await this.open();
    const result = await run.finish();
    return { ...result, folder: run.folder };
  }
}

/** A trainer as a program calls it: with a config in which datasets may be in-memory rows. */
export interface ProgramTrainer<S extends ConfigSchema, Options extends TrainerOptions> {
  command: string;
  schema: S;
  start: (resolved: ResolvedRun<S>, options: Options) => Promise<TrainingRun>;
  /** Replaces objects that a program passes with the names that the config stores. */
  named?: (flags: Record<string, unknown>) => void;
  /** Names of the options that only this trainer has. */
  own?: readonly string[];
  /** Validates this trainer's own options. */
  check?: (options: Options) => void;
}

/** Makes the training for a program's call. */
export function trainingOf<Step extends TrainStep, S extends ConfigSchema, Options extends TrainerOptions>(
  { command, schema, start, named, own = [], check }: ProgramTrainer<S, Options>,
  input: object,
  options: Options,
): Training<Step> {
  return new Training(async () => {
    checkTrainerOptions(camelCase(command.replace(' ', '-')), options, own);
    check?.(options);
    const { flags, given } = separateRows(input, options);
    named?.(flags);
    return start(await resolveRun(schema, flags, command), { ...options, ...given });
  });
}
