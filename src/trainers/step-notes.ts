/**
 * Notes on given options that the number of steps leaves without effect. They are allowed, but a user should not have
 * to find out from the curves.
 */
import type { Progress } from '../progress.ts';
import { counted, spelled } from '../spelling.ts';

interface StepOptions {
  maxSteps?: number;
  epochs?: number;
  warmupSteps?: number;
}

export function tellStepNotes(
  { maxSteps, epochs, warmupSteps = 0 }: StepOptions,
  { totalSteps, limits }: { totalSteps: number; limits?: readonly string[] },
  progress?: Progress,
): void {
  const tell = (label: string, text: string) => progress?.start(label).done(spelled(text));
  // --max-steps ends a training before its epochs, and never extends it.
  if (maxSteps !== undefined && limits !== undefined && !limits.includes('maxSteps')) {
    const end = `--epochs ${epochs} ${epochs === 1 ? 'ends' : 'end'} after ${counted(totalSteps, 'step')}`;
    tell('steps', `--max-steps ${maxSteps} is not reached: ${end}`);
  }
  if (warmupSteps > totalSteps) {
    const share = Number(((100 * totalSteps) / warmupSteps).toPrecision(2));
    tell(
      'learning rate',
      `--warmup-steps ${warmupSteps} is more than the ${counted(totalSteps, 'step')} of this training: it rises to ${share} % of --lr`,
    );
  }
}
