/**
 * What a trainer gives to the shared loop, what it may ask of it, and what it gets back.
 *
 *     const task: TrainTask<Batch, number> = { optimizer, totalSteps, plan, backward, evaluate, saveModel, loadModel, state, restore };
 */
import type { AdamW, ScheduleOptions } from '../../nn/index.ts';
import type { Progress } from '../../progress.ts';
import type { Run } from '../../runs/run.ts';
import type { LoopState } from './state.ts';
import type { Sums } from './sums.ts';

/** One optimiser update: its micro-batches, and the denominators of all of them together. */
export interface Update<Batch, Totals> {
  batches: readonly Batch[];
  totals: Totals;
}

/** One step: usually one update; several where a batch of rollouts is used more than once. */
export interface StepPlan<Batch, Totals> {
  updates: Iterable<Update<Batch, Totals>> | AsyncIterable<Update<Batch, Totals>>;
  /** Examples (pairs, prompts) that this step consumes. */
  examples: number;
  epoch: number;
  /** Known before any update, such as rollout statistics. */
  metrics?: Record<string, number>;
}

export interface TrainTask<Batch, Totals> {
  readonly optimizer: Optimizer;
  readonly totalSteps: number;
  /** The work of a step, counted from 1. May look at the signal where it takes long. */
  plan(step: number, signal?: AbortSignal): StepPlan<Batch, Totals> | Promise<StepPlan<Batch, Totals>>;
  /**
   * Forward and backward of a micro-batch, inside a `scope`. Adds to the gradients its share of the step's loss (divided by
   * `totals`, so that the shares add up whatever the split) and returns its share of each metric; `loss` is required.
   */
  backward(batch: Batch, totals: Totals): Sums & { loss: Sums[string] };
  /** Adds to, or corrects, an update's summed metrics; for maxima and the like. */
  afterUpdate?(metrics: Record<string, number>, step: number): Record<string, number>;
  /** Metrics without prefix; the loop files them under `eval/`. The generators are put back after it. */
  evaluate?(step: number): Record<string, number> | Promise<Record<string, number>>;
  saveModel(folder: string): void | Promise<void>;
  loadModel(folder: string): void | Promise<void>;
  /** Tensors besides the model that the next step depends on, such as a moved reference: into checkpoints only. */
  saveExtras?(folder: string): void | Promise<void>;
  loadExtras?(folder: string): void | Promise<void>;
  /** Data position and whatever else decides the next step, as JSON. Called at every step: keep it small. */
  state(): unknown;
  restore(state: unknown): void | Promise<void>;
}

export type Optimizer = Pick<AdamW, 'lr' | 'parameters' | 'step' | 'zeroGrad' | 'save' | 'load'>;

export interface LoopOptions {
  /** Where to write; without one nothing is written (tests, ranks other than 0). */
  run?: Run;
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
  /** A whole checkpoint, as `findCheckpoint` gives it. */
  resumeFrom?: string;
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
  /** The best weights are those that `final/` gets. */
  loadAtEnd?: boolean;
}

export interface TrainStep {
  step: number;
  totalSteps: number;
  epoch: number;
  /** `train/…`, and `eval/…` where the step was evaluated. */
  metrics: Record<string, number>;
  /** The update was left out: a number was not finite. */
  skipped: boolean;
  evaluated: boolean;
  /** This evaluation is the best so far. */
  improved: boolean;
  /** The checkpoint written after this step. */
  checkpoint?: string;
}

export interface TrainResult {
  step: number;
  ended: 'finished' | 'interrupted' | 'early-stopping';
  best?: LoopState['best'];
  /** Where to resume from, or the final model. */
  checkpoint?: string;
  skipped: number;
}
