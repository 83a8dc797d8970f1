/**
 * A training step as the product's own loop takes it, timed from the end of one to the end of the next: the fastest but the first,
 * and CUDA's peak from the second on. The device may still update when a step ends; the next one waits for it.
 */
import { cudaMemory, resetPeakMemory } from '../../src/tensor/index.ts';
import { type TrainTask, trainLoop } from '../../src/trainers/loop/loop.ts';

export interface StepWork {
  cuda: boolean;
  /** Steps that count; one more comes before them. */
  steps: number;
}

export interface Measured {
  /** What the fastest step was measured as, `train/…`. */
  metrics: Record<string, number>;
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

export async function fastestStep(
  task: TrainTask,
  { cuda }: StepWork,
  options: { lr: number; maxGradNorm: number },
  eachStep: (metrics: Record<string, number>) => void = () => {},
): Promise<Measured> {
  let best: Measured = { metrics: {}, seconds: Number.POSITIVE_INFINITY };
  let before = 0;
  for await (const { step, metrics } of trainLoop(task, options)) {
    const now = performance.now();
    const seconds = (now - before) / 1000;
    before = now;
    eachStep(metrics);
    if (step === 1 && cuda) resetPeakMemory();
    if (step > 1 && seconds < best.seconds) best = { metrics, seconds };
  }
  return cuda ? { ...best, peakGiB: cudaMemory().peak / 2 ** 30 } : best;
}
