/** Where a curve fell most: the step after which the mean of a few values is lowest beside the mean of those before. */
import type { Curve } from '../../wire/curves.ts';

export function steepestFall({ y, step }: Pick<Curve, 'y' | 'step'>, window = 3): number | undefined {
  const known = y.flatMap((value, i) => (value === null ? [] : [{ value, step: step[i] as number }]));
  const mean = (part: typeof known) => part.reduce((sum, { value }) => sum + value, 0) / part.length;
  let found: { fall: number; step: number } | undefined;
  for (let i = 1; i < known.length; i++) {
    const fall = mean(known.slice(Math.max(0, i - window), i)) - mean(known.slice(i, i + window));
    if (fall > (found?.fall ?? 0)) found = { fall, step: known[i]?.step as number };
  }
  return found?.step;
}
