/** What a run changed, in the figure that says most. The same order as the run's report. */
import { percent, short } from '../../format/numbers.ts';
import type { Curve } from '../../wire/curves.ts';
import { certaintyOf } from './certainty.ts';

export interface Headline {
  first: string;
  last: string;
  meaning: string;
  metric: string;
  /** "best 72 % at step 10", where neither end is the best. */
  best?: string;
  /** How far the ends may be off by chance, where it is known. */
  certainty?: string;
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

/** Where accuracy is not of answers: the order of a pair; of a reward model also a graded solution or step. */
const meanings: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  preference: { 'eval/accuracy': 'of held-out pairs ranked right', 'train/accuracy': 'of training pairs ranked right' },
  reward: { 'eval/accuracy': 'of held-out judgements right', 'train/accuracy': 'of training judgements right' },
};

/** The first steps of training are averaged, because a single batch is noise; held-out values stand for themselves. */
export function headlineOf(curves: ReadonlyMap<string, Curve>, kind = 'policy'): Headline | undefined {
  for (const [metric, plain] of figures) {
    const meaning = meanings[kind]?.[metric] ?? plain;
    const { y = [], step = [] } = curves.get(metric) ?? {};
    const known = y.flatMap((value, i) => (value === null ? [] : [{ value, step: step[i] ?? 0 }]));
    const values = known.map(({ value }) => value);
    if (values.length < 2) continue;
    const window = metric.startsWith('eval/') ? 1 : Math.max(1, Math.min(8, Math.floor(values.length / 4)));
    const mean = (part: readonly number[]) => part.reduce((sum, value) => sum + value, 0) / part.length;
    const write = metric.endsWith('accuracy') ? wholePercent : short;
    const means = values.slice(window - 1).map((_, i) => mean(values.slice(i, i + window)));
    const top = (metric.endsWith('loss') ? Math.min : Math.max)(...means);
    const at = known[means.indexOf(top) + window - 1]?.step;
    const [first, last, best] = [means[0] as number, means.at(-1) as number, top].map(write) as [
      string,
      string,
      string,
    ];
    const isEnd = best === first || best === last;
    const certainty = certaintyOf(curves, metric, [known.slice(0, window), known.slice(-window)]);
    return {
      ...{ first, last, meaning, metric },
      ...(isEnd ? {} : { best: `best ${best} at step ${at}` }),
      ...(certainty === undefined ? {} : { certainty }),
    };
  }
  return undefined;
}

const wholePercent = (share: number) => percent(Math.round(100 * share) / 100);
