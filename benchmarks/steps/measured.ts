/**
 * A training step as the product's own loop takes it. On the CPU the fastest but the first, from the end of one to the end of the
 * next. On CUDA a step ends for the host while the device still updates or works for the next one, so all but the first are timed
 * together, between two moments at which the device has nothing to do; with them CUDA's peak.
 */
import type { CacheDtype } from '../../src/models/index.ts';
import { cudaMemory, resetPeakMemory, synchronize } from '../../src/tensor/index.ts';
import { type TrainTask, trainLoop } from '../../src/trainers/loop/loop.ts';
import type { LLAMA_15M, QWEN3_06B } from '../support/shapes.ts';

export interface StepWork {
  cuda: boolean;
  shape: typeof LLAMA_15M | typeof QWEN3_06B;
  /** Steps that count; one more comes before them. */
  steps: number;
  /** Of the sampler, in steps that sample. */
  cacheDtype?: CacheDtype;
}

export interface Measured {
  /** What the fastest step was measured as by the host, `train/…`. */
  metrics: Record<string, number>;
  /** Of a step. */
  seconds: number;
  peakGiB?: number;
}

/** What the loop asks of a task beside its gradient, where nothing is saved. */
export const unsaved = {
  saveModel: () => {},
  loadModel: () => {},
  state: () => null,
  restore: () => {},
};

export async function measuredStep(
  task: TrainTask,
  { cuda, steps }: StepWork,
  options: { lr: number; maxGradNorm: number },
  eachStep: (metrics: Record<string, number>) => void = () => {},
): Promise<Measured> {
  let best: Measured = { metrics: {}, seconds: Number.POSITIVE_INFINITY };
  let before = 0;
  let begun = 0;
  for await (const { step, metrics } of trainLoop(task, options)) {
    if (step === 1 && cuda) {
      synchronize();
      resetPeakMemory();
      begun = performance.now();
    }
    const now = performance.now();
    const seconds = (now - before) / 1000;
    before = now;
    eachStep(metrics);
    if (step > 1 && seconds < best.seconds) best = { metrics, seconds };
  }
  if (!cuda) return best;
  synchronize();
  const seconds = (performance.now() - begun) / 1000 / steps;
  return { ...best, seconds, peakGiB: cudaMemory().peak / 2 ** 30 };
}
