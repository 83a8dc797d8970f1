/** Where a curve fell most: the step from which the mean of a few values is lowest beside the mean of those before. */
import type { Curve } from '../../wire/curves.ts';

export interface Fall {
  step: number;
  /** The last step before it. */
  before: number;
}

export function steepestFall({ y, step }: Pick<Curve, 'y' | 'step'>, window = 3): Fall | undefined {
  const known = y.flatMap((value, i) => (value === null ? [] : [{ value, step: step[i] as number }]));
  const mean = (part: typeof known) => part.reduce((sum, { value }) => sum + value, 0) / part.length;
  let found: (Fall & { fall: number }) | undefined;
  for (let i = 1; i < known.length; i++) {
    const fall = mean(known.slice(Math.max(0, i - window), i)) - mean(known.slice(i, i + window));
    const [before, at] = [known[i - 1]?.step, known[i]?.step] as [number, number];
    if (fall > (found?.fall ?? 0)) found = { fall, before, step: at };
  }
  return found && { step: found.step, before: found.before };
}
