/** Learning rates over training: warm-up from 0, then constant, linear to 0, or half a cosine to 0. */
import { suggestion, UserError } from '../errors.ts';

/** How the learning rate decays after the warm-up. */
export type ScheduleKind = 'constant' | 'linear' | 'cosine';
const kinds: readonly ScheduleKind[] = ['constant', 'linear', 'cosine'];

/** A learning-rate schedule: its kind and its lengths in steps. */
export interface ScheduleOptions {
  kind: ScheduleKind;
  totalSteps: number;
  warmupSteps?: number;
  /** The rate at the end of the decay, as a fraction of the peak. */
  floor?: number;
}

/** The factor on the peak learning rate at a step, counted from 0. Step 0 of a warm-up over W steps trains at 1/W, not at 0. */
export function scheduleFactor(step: number, options: ScheduleOptions): number {
  const { kind, totalSteps, warmupSteps = 0, floor = 0 } = options;
  if (!(totalSteps > 0) || warmupSteps < 0)
    throw new UserError(`A schedule of ${totalSteps} steps with ${warmupSteps} of warm-up is not possible.`);
  if (!kinds.includes(kind))
    throw new UserError(`There is no schedule "${kind}".${suggestion(kind, kinds)} Known: ${kinds.join(', ')}.`);
  if (step < warmupSteps) return (step + 1) / warmupSteps;
  if (kind === 'constant') return 1;
  const progress = Math.min(1, (step - warmupSteps) / Math.max(1, totalSteps - warmupSteps));
  const shape = kind === 'linear' ? 1 - progress : (1 + Math.cos(Math.PI * progress)) / 2;
  return floor + (1 - floor) * shape;
}
