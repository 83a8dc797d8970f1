/**
 * The loop's state in a checkpoint: counters, best metric, random generators and the task's own state. Weights and
 * optimiser moments are stored beside it as tensors.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { rngState, setRngState, type Tensor } from '../../tensor/index.ts';

export const stateFile = 'trainer_state.json';
export const optimizerFile = 'optimizer.safetensors';
export const configFile = 'train_config.json';

export interface LoopState {
  /** Number of steps taken. */
  step: number;
  examples: number;
  /** Steps whose update was skipped because a number was not finite, in total, and consecutively up to now. */
  skipped: number;
  skippedInRow: number;
  best?: { metric: string; value: number; step: number };
  /** Number of evaluations since the best one. */
  sinceBest: number;
  /** An evaluation was due at this step, but an interrupt came first. */
  evaluationDue: boolean;
  /** Sums for the next logged row (`logSteps`). */
  window: { count: number; sums: Record<string, number> };
  /** Set after an exception between two updates of a step: the weights are ahead of the rest of the state. */
  inexact?: boolean;
  /** The loss of the first step. `diverging` counts the latest consecutive steps that look diverged. */
  firstLoss?: number;
  diverging?: number;
  /** `TrainTask.dataFingerprint` of the run so far. */
  data?: string;
  /** `TrainTask.heldOutFingerprint` of the run so far. */
  heldOut?: string;
  /** The folder that relative paths in the checkpoint's config refer to. A run may be resumed from another folder. */
  cwd?: string;
  rng: Record<string, string>;
  /** `TrainTask.state()`. */
  task: unknown;
}

export const freshState = (): LoopState => ({
  step: 0,
  examples: 0,
  skipped: 0,
  skippedInRow: 0,
  sinceBest: 0,
  evaluationDue: false,
  window: { count: 0, sums: {} },
  rng: {},
  task: undefined,
});

/** Reads the state from a checkpoint's folder. */
export function readState(folder: string): LoopState {
  const file = join(folder, stateFile);
  if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as LoopState;
  throw new UserError(
    `${folder} holds a model, but neither optimiser nor trainer state: start a new run from it, or resume from a step-N folder.`,
  );
}

/** The random generators of the CPU and of every device that holds a parameter. */
export function captureRng(parameters: readonly Tensor[]): Record<string, string> {
  const devices = new Set(['cpu', ...parameters.map((parameter) => parameter.device)]);
  return Object.fromEntries([...devices].map((device) => [device, Buffer.from(rngState(device)).toString('base64')]));
}

export function restoreRng(states: Record<string, string>): void {
  for (const [device, state] of Object.entries(states))
    setRngState(Uint8Array.from(Buffer.from(state, 'base64')), device);
}
