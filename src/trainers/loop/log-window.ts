/** The metrics since the last logged row. Counters and lr are logged as they are; the rest is averaged over logSteps. */
import type { LoopState } from './state.ts';

const isAveraged = (name: string) =>
  name.startsWith('train/') && !/^train\/(lr|epoch|examples|skipped_steps)$/.test(name);

export function addToWindow(window: LoopState['window'], metrics: Readonly<Record<string, number>>): void {
  window.count++;
  for (const [name, value] of Object.entries(metrics)) {
    if (isAveraged(name)) window.sums[name] = (window.sums[name] ?? 0) + value;
  }
}

/** Means over the steps in the window. */
export const windowMeans = ({ count, sums }: LoopState['window']): Record<string, number> =>
  Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / count]));
