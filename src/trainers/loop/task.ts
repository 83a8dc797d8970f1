/**
 * The interface between a trainer and the shared loop. A trainer's step gets `update` from the loop, which does one
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
 * `backward` adds the gradient of the micro-batch's share of the loss (with the denominators of all micro-batches
 * together) and returns its share of each metric; `loss` is required. Resolves to the combined metrics.
 */
export type Update = <Batch>(
  batches: readonly Batch[],
  backward: (batch: Batch) => BatchMetrics,
  options?: UpdateHints<Batch>,
) => Promise<Record<string, number>>;

export interface UpdateHints<Batch> {
  /** How much work a micro-batch is, where ranks share them; all the same unless given. */
  cost?: (batch: Batch) => number;
  /** The decisions that the step's accuracies are shares of. */
  decisions?: number;
  /**
   * Prepares work of the next step that does not depend on this update, and returns what starts it: that is called once the update is
   * queued and before its numbers are read. Neither is called but where it keeps a device busy: on CUDA, with one rank. What throws
   * in them is left to the next step.
   */
  ahead?: () => Promise<() => void>;
}

/** Metrics of a micro-batch: they are summed, except maxima, whose names end in `_max` (src/algorithms/metrics.ts). */
export type BatchMetrics = Record<string, number | Tensor> & { loss: number | Tensor };

export interface StepContext {
  update: Update;
  /**
   * Has the whole weights on every rank until the next update: for sampling and scoring. Nothing to do but with --shard full;
   * every rank calls it.
   */
  wholeWeights: () => Promise<void>;
  /** Aborted at an interrupt. A step may stop at any time before its first update. */
  signal?: AbortSignal;
}

export interface StepOutcome {
  /** Examples (pairs, prompts) that this step consumed. */
  examples: number;
  epoch: number;
  /** Metrics besides those of the updates, such as rollout statistics. */
  metrics?: Record<string, number>;
}

export type StepLimit = 'maxSteps' | 'epochs';

export interface TrainTask {
  readonly optimizer: Optimizer;
  /** The decoder that is trained: its backward tells when a block's gradients are complete. */
  readonly decoder?: Decoder;
  /** Whether a loss that grows many times over means divergence. For a policy's loss it does not. */
  readonly lossTellsFit?: boolean;
  /** May change when a run is resumed with another batch size. */
  readonly totalSteps: number;
  /** The options that limit its steps: more of them are taken where all of these grow. */
  readonly limits?: readonly StepLimit[];
  /** A hash of the training data; a resumed run compares it with the checkpoint's. */
  readonly dataFingerprint?: string;
  /** The same of the held-out examples: its evaluations are compared with each other. */
  readonly heldOutFingerprint?: string;
  /** Takes step `number`, counted from 1: usually one update; several if rollouts are used more than once. */
  step(number: number, context: StepContext): Promise<StepOutcome>;
  /**
   * Metrics without prefix; the loop adds `eval/`. Random generators are restored afterwards. Whatever it throws once the signal is
   * aborted breaks it off: it is evaluated when the run goes on.
   */
  evaluate?(step: number, signal?: AbortSignal): Record<string, number> | Promise<Record<string, number>>;
  saveModel(folder: string): void | Promise<void>;
  loadModel(folder: string): void | Promise<void>;
  /** Saves further tensors that the next step depends on, such as an updated reference; in checkpoints only. */
  saveExtras?(folder: string): void | Promise<void>;
  loadExtras?(folder: string): void | Promise<void>;
  /** Data position and all else that decides the next step, as JSON. Called at every step: keep it small. */
  state(): unknown;
  restore(state: unknown): void | Promise<void>;
}

export interface Optimizer extends Pick<AdamW, 'lr' | 'parameters' | 'named' | 'zeroGrad' | 'load'> {
  /** The weights, where they are dealt over the ranks. */
  readonly weights?: {
    readonly isWhole: boolean;
    readonly bytes: { whole: number; inUpdate: number };
    makeWhole(): Promise<boolean>;
  } | null;
  /** Updates the parameters; a `factor` for the gradients is given only to an optimiser that `scalesOnDevice`. */
  step(factor?: Tensor): void | Promise<void>;
  /** Whether `step` takes a factor that is still being computed; where that turns out to be NaN, `takeBackStep` follows. */
  readonly scalesOnDevice?: boolean;
  takeBackStep?(): void;
  save(path: string | undefined): void | Promise<void>;
}

export interface LoopOptions {
  /** The run to write to; without one nothing is written (tests, ranks other than 0). */
  run?: Run;
  /** The processes that train together; this one alone unless given. */
  world?: World;
  /** Sums gradients in the order of micro-batches: any number of ranks gives the same bits. */
  exact?: boolean;
  /** Decides dropout by step and micro-batch. */
  seed?: number;
  /** Whether an update and work of the next step (`UpdateHints.ahead`) are started before the step's numbers are read: on CUDA unless given. */
  worksAhead?: boolean;
  /** Saved with each checkpoint as train_config.json. */
  config?: Record<string, unknown>;
  /** The peak learning rate. */
  lr: number;
  schedule?: Omit<ScheduleOptions, 'totalSteps'>;
  /** 0 = off. */
  maxGradNorm?: number;
  /** Steps between; 0 or −1 = never. */
  evalSteps?: number;
  saveSteps?: number;
  logSteps?: number;
  saveTotalLimit?: number;
  checkpointName?: (step: number) => string;
  /** Saves `final/` at the end. */
  saveFinal?: boolean;
  best?: BestOptions;
  /** A checkpoint's path, from `findCheckpoint`. */
  resumeFrom?: string;
  /** Its state, where the task has been put in its place already (`takePlace`). */
  place?: LoopState;
  /** Resumes even if the data are not those of the checkpoint. */
  allowChangedData?: boolean;
  signal?: AbortSignal;
  progress?: Progress;
  label?: string;
  /** Non-finite steps in a row that end the run. */
  maxSkippedSteps?: number;
}

export interface BestOptions {
  /** `eval/loss`. */
  metric: string;
  greaterIsBetter?: boolean;
  /** Ends the run after this many evaluations without a better one. */
  patience?: number;
  /** `final/` gets the best weights, not the last. */
  loadAtEnd?: boolean;
}

/** A step of a training, with its metrics. */
export interface TrainStep {
  step: number;
  totalSteps: number;
  epoch: number;
  /** `train/…` and, if the step was evaluated, `eval/…`, as logged. */
  metrics: Record<string, number>;
  /** The same without prefix: on training data and, if the step was evaluated, on held-out data. */
  train: Readonly<Record<string, number>>;
  eval?: Readonly<Record<string, number>>;
  /** The update was skipped because a number was not finite. */
  skipped: boolean;
  evaluated: boolean;
  /** This evaluation is the best so far. */
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
