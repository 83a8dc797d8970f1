/** What a run changed, in the figure that says most. The same order as the run's report. */
import { percent, short } from '../../format/numbers.ts';
import type { Curve } from '../../wire/curves.ts';

export interface Headline {
  first: string;
  last: string;
  meaning: string;
  metric: string;
}

const figures: [metric: string, meaning: string][] = [
  ['eval/accuracy', 'of held-out prompts answered right'],
  ['eval/pairwise_accuracy', 'of held-out pairs ranked right'],
  ['eval/reward', 'reward on held-out prompts'],
  ['train/accuracy', 'of training responses right'],
  ['train/reward', 'reward in training'],
  ['eval/loss', 'held-out loss'],
  ['train/loss', 'training loss'],
];

/** The first steps of training are averaged, because a single batch is noise; held-out values stand for themselves. */
export function headlineOf(curves: ReadonlyMap<string, Curve>): Headline | undefined {
  for (const [metric, meaning] of figures) {
    const values = (curves.get(metric)?.y ?? []).filter((value) => value !== null);
    if (values.length < 2) continue;
    const window = metric.startsWith('eval/') ? 1 : Math.max(1, Math.min(8, Math.floor(values.length / 4)));
    const mean = (part: readonly number[]) => part.reduce((sum, value) => sum + value, 0) / part.length;
    const write = metric.endsWith('accuracy') ? wholePercent : short;
    return { first: write(mean(values.slice(0, window))), last: write(mean(values.slice(-window))), meaning, metric };
  }
  return undefined;
}

const wholePercent = (share: number) => percent(Math.round(100 * share) / 100);
