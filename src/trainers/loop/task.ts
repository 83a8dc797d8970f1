/**
 * What a trainer gives to the shared loop, what it may ask of it, and what it gets back. A step reads from top to bottom: the
 * loop hands it `update`, which does one optimiser update.
 *
 *     async step(n, { update, signal }) {
 *       const batches = await data.next(n, signal);
 *       const { accuracy } = await update(batches, (batch) => backward(batch, totalsOf(batches)));
 *       return { examples: batches.length, epoch: data.epoch };
 *     }
 */
import type { AdamW, ScheduleOptions } from '../../nn/index.ts';
import type { Progress } from '../../progress.ts';
import type { Run } from '../../runs/run.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { LoopState } from './state.ts';

/**
 * One optimiser update: `backward` on every micro-batch, inside a `scope`, then clipping and the optimiser. `backward` adds to
 * the gradients its share of the update's loss (divided by the denominators of all micro-batches together, so that the shares
 * add up whatever the split) and returns its share of each metric; `loss` is required. Resolves to the combined metrics.
 */
export type Update = <Batch>(
  batches: readonly Batch[],
  backward: (batch: Batch) => BatchMetrics,
) => Promise<Record<string, number>>;

/** Shares that add up, and maxima by names that end in `_max` (src/algorithms/metrics.ts). */
export type BatchMetrics = Record<string, number | Tensor> & { loss: number | Tensor };

export interface StepContext {
  update: Update;
  /** To be looked at where a step takes long. Breaking off is free until the first update is applied. */
  signal?: AbortSignal;
}

export interface StepOutcome {
  /** Examples (pairs, prompts) that this step consumed. */
  examples: number;
  epoch: number;
  /** Besides those of the updates, such as rollout statistics. */
  metrics?: Record<string, number>;
}

export interface TrainTask {
  readonly optimizer: Optimizer;
  readonly totalSteps: number;
  /** A step, counted from 1: usually one update; several where a batch of rollouts is used more than once. */
  step(number: number, context: StepContext): Promise<StepOutcome>;
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
  /** `train/…`, and `eval/…` where the step was evaluated: as they are logged. */
  metrics: Record<string, number>;
  /** The same without prefix: of the training data, and of held-out data where the step was evaluated. */
  train: Readonly<Record<string, number>>;
  eval?: Readonly<Record<string, number>>;
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
