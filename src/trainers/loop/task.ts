/**
 * The interface between a trainer and the shared loop. The loop passes `update` to a trainer's step; it does one
 * optimiser update.
 *
 *     async step(n, { update, signal }) {
 *       const batches = await data.next(n, signal);
 *       const { accuracy } = await update(batches, (batch) => backward(batch, totalsOf(batches)));
 *       return { examples: batches.length, epoch: data.epoch };
 *     }
 */
import type { World } from '../../dist/world.ts';
import type { Decoder } from '../../models/index.ts';
import type { AdamW, ScheduleOptions } from '../../nn/index.ts';
import type { Progress } from '../../progress.ts';
import type { Run } from '../../runs/run.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { LoopState } from './state.ts';

/**
 * One optimiser update: `backward` on every micro-batch, inside a `scope`, then clipping and the optimiser's step.
 * `backward` adds the gradient of the micro-batch's share of the loss, whose denominators cover all micro-batches, and
 * returns its share of each metric; `loss` is required. Resolves to the combined metrics.
 */
export type Update = <Batch>(
  batches: readonly Batch[],
  backward: (batch: Batch) => BatchMetrics,
  options?: UpdateHints<Batch>,
) => Promise<Record<string, number>>;

export interface UpdateHints<Batch> {
  /** The cost of a micro-batch, by which ranks share the work. Default: all cost the same. */
  cost?: (batch: Batch) => number;
  /** The number of decisions behind the step's accuracies. */
  decisions?: number;
  /**
   * Prepares work of the next step that does not depend on this update, and returns a function that starts it. The loop
   * calls that function when the update is queued, before the step's numbers are read. Both run only on CUDA with one
   * rank, where they keep the device busy. If either throws, the next step does the work itself.
   */
  ahead?: () => Promise<() => void>;
}

/** Metrics of a micro-batch. They are summed, except maxima, whose names end in `_max` (src/algorithms/metrics.ts). */
export type BatchMetrics = Record<string, number | Tensor> & { loss: number | Tensor };

export interface StepContext {
  update: Update;
  /**
   * Gathers the whole weights on every rank until the next update, for sampling and scoring. Every rank must call it.
   * Does nothing without --shard full.
   */
  wholeWeights: () => Promise<void>;
  /** Aborted at an interrupt. A step may stop at any point before its first update. */
  signal?: AbortSignal;
}

export interface StepOutcome {
  /** Number of examples (pairs, prompts) that this step consumed. */
  examples: number;
  epoch: number;
  /** Metrics besides those of the updates, for example of the rollouts. */
  metrics?: Record<string, number>;
}

export type StepLimit = 'maxSteps' | 'epochs';

export interface TrainTask {
  readonly optimizer: Optimizer;
  /** The decoder in training. Its backward reports when a block's gradients are complete. */
  readonly decoder?: Decoder;
  /** Whether a loss that grows many times over means divergence. Not so for a policy's loss. */
  readonly lossTellsFit?: boolean;
  /** May change when a run resumes with another batch size. */
  readonly totalSteps: number;
  /** The options that limit the number of steps. Raising all of them gives more steps. */
  readonly limits?: readonly StepLimit[];
  /** A hash of the training data. A resumed run compares it with the checkpoint's. */
  readonly dataFingerprint?: string;
  /** A hash of the held-out examples. Evaluations are comparable only on the same ones. */
  readonly heldOutFingerprint?: string;
  /** Takes step `number`, counted from 1. Usually one update; several if rollouts are reused. */
  step(number: number, context: StepContext): Promise<StepOutcome>;
  /**
   * Metrics without prefix; the loop adds `eval/` and restores the random generators afterwards. An error after the
   * signal is aborted cancels the evaluation, which then runs when the run is resumed.
   */
  evaluate?(step: number, signal?: AbortSignal): Record<string, number> | Promise<Record<string, number>>;
  saveModel(folder: string): void | Promise<void>;
  loadModel(folder: string): void | Promise<void>;
  /** Saves more tensors that the next step depends on, such as an updated reference. Called for checkpoints only. */
  saveExtras?(folder: string): void | Promise<void>;
  loadExtras?(folder: string): void | Promise<void>;
  /** The data position and all else that decides the next step, as JSON. Called every step, so keep it small. */
  state(): unknown;
  restore(state: unknown): void | Promise<void>;
}

export interface Optimizer extends Pick<AdamW, 'lr' | 'parameters' | 'named' | 'zeroGrad' | 'load'> {
  /** The weights, if they are sharded over the ranks. */
  readonly weights?: {
    readonly isWhole: boolean;
    readonly bytes: { whole: number; inUpdate: number };
    makeWhole(): Promise<boolean>;
  } | null;
  /** Updates the parameters. Only an optimiser with `scalesOnDevice` is given a `factor` for the gradients. */
  step(factor?: Tensor): void | Promise<void>;
  /**
   * Whether `step` takes a factor that the device is still computing. If it turns out to be NaN, `takeBackStep`
   * follows.
   */
  readonly scalesOnDevice?: boolean;
  takeBackStep?(): void;
  save(path: string | undefined): void | Promise<void>;
}

export interface LoopOptions {
  /** The run to write to. Without one, as in tests and on ranks other than 0, nothing is written. */
  run?: Run;
  /** The processes that train together. Default: this one alone. */
  world?: World;
  /** Sums gradients in the order of the micro-batches, so that any number of ranks gives the same bits. */
  exact?: boolean;
  /** Seeds dropout, together with the step and the micro-batch. */
  seed?: number;
  /**
   * Whether the update and work of the next step (`UpdateHints.ahead`) start before the step's numbers are read.
   * Default: on CUDA.
   */
  worksAhead?: boolean;
  /** Saved with each checkpoint as train_config.json. */
  config?: Record<string, unknown>;
  /** The peak learning rate. */
  lr: number;
  schedule?: Omit<ScheduleOptions, 'totalSteps'>;
  /** 0 = off. */
  maxGradNorm?: number;
  /** Steps between evaluations, checkpoints and logged rows; 0 or −1 = never. */
  evalSteps?: number;
  saveSteps?: number;
  logSteps?: number;
  saveTotalLimit?: number;
  checkpointName?: (step: number) => string;
  /** Saves `final/` at the end. */
  saveFinal?: boolean;
  best?: BestOptions;
  /** The checkpoint to resume from, as found by `findCheckpoint`. */
  resumeFrom?: string;
  /** Its state, if `takePlace` has already moved the task to its position. */
  place?: LoopState;
  /** Resumes even if the data differ from the checkpoint's. */
  allowChangedData?: boolean;
  signal?: AbortSignal;
  progress?: Progress;
  label?: string;
  /** The number of consecutive non-finite updates that ends the run. */
  maxSkippedSteps?: number;
}

export interface BestOptions {
  /** For example `eval/loss`. */
  metric: string;
  greaterIsBetter?: boolean;
  /** Ends the run after this many evaluations without improvement. */
  patience?: number;
  /** `final/` gets the best weights instead of the last. */
  loadAtEnd?: boolean;
}

/** A training step with its metrics. */
export interface TrainStep {
  step: number;
  totalSteps: number;
  epoch: number;
  /** `train/…` and, if the step was evaluated, `eval/…`, as they are logged. */
  metrics: Record<string, number>;
  /** The metrics without prefix: on training data and, if the step was evaluated, on held-out data. */
  train: Readonly<Record<string, number>>;
  eval?: Readonly<Record<string, number>>;
  /** The update was skipped because a number was not finite. */
  skipped: boolean;
  evaluated: boolean;
  /** The evaluation at this step is the best so far. */
  improved: boolean;
  /** The checkpoint written after this step. */
  checkpoint?: string;
}

/** How a training ended. */
export interface TrainResult {
  step: number;
  ended: 'finished' | 'interrupted' | 'early-stopping';
  best?: LoopState['best'];
  /** The final model, or the checkpoint to resume from. */
  checkpoint?: string;
  skipped: number;
}
