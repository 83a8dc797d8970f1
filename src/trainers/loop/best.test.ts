import { expect, it } from 'vitest';
import { bestOptions, isBetterWhenGreater } from './best.ts';

const judged = { metric: 'reward', names: ['reward', 'accuracy', 'kl', 'loss', /^pass_at_/] };
const nothing = { loadBestModelAtEnd: false };

it('knows by its name whether a metric is better when greater', () => {
  const greater = [
    'eval/accuracy',
    'eval/reward',
    'eval/pass_at_4',
    'eval/margin',
    'eval/chosen_lp',
    'eval/reward_glossy',
  ];
  const smaller = ['eval/loss', 'eval/nll_loss', 'eval/perplexity', 'eval/kl', 'eval/kl_div', 'eval/error_rate'];
  expect(greater.filter((name) => !isBetterWhenGreater(name))).toEqual([]);
  expect(smaller.filter(isBetterWhenGreater)).toEqual([]);
});

it('keeps the greatest accuracy and the smallest loss without being told which way is better', () => {
  expect(bestOptions({ ...nothing, metricForBestModel: 'accuracy' }, judged)).toMatchObject({
    metric: 'eval/accuracy',
    greaterIsBetter: true,
  });
  expect(bestOptions({ ...nothing, metricForBestModel: 'eval_loss' }, judged)?.greaterIsBetter).toBe(false);
  const told = { ...nothing, metricForBestModel: 'eval_loss', greaterIsBetter: true };
  expect(bestOptions(told, judged)?.greaterIsBetter).toBe(true);
});

it('takes the trainer’s own metric where patience or the best model is asked for without one', () => {
  expect(bestOptions(nothing, judged)).toBeUndefined();
  expect(bestOptions({ ...nothing, earlyStoppingPatience: 2 }, judged)).toMatchObject({
    metric: 'eval/reward',
    patience: 2,
  });
  expect(bestOptions({ loadBestModelAtEnd: true }, judged)).toMatchObject({ metric: 'eval/reward', loadAtEnd: true });
});

it('refuses a metric that evaluations never give, with those that they give', () => {
  const named = (metricForBestModel: string) => bestOptions({ ...nothing, metricForBestModel }, judged);
  expect(() => named('eval/acuracy')).toThrow(
    /--metric-for-best-model eval\/acuracy.*eval\/accuracy.*It gives: eval\/reward/,
  );
  expect(named('pass_at_8')?.metric).toBe('eval/pass_at_8');
});
