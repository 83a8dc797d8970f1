import { expect, it } from 'vitest';
import { bestOptions, isBetterWhenGreater, noteBest } from './best.ts';

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

it('counts evaluations since the best one; a number that is not finite is never the best', () => {
  const state: Parameters<typeof noteBest>[0] = { step: 0, sinceBest: 0 };
  const best = { metric: 'eval/loss', greaterIsBetter: false };
  const told = [2, Number.NaN, 3, 1].map((loss, i) => {
    state.step = i + 1;
    return [noteBest(state, best, { 'eval/loss': loss }), state.sinceBest];
  });
  expect(told).toEqual([
    [true, 0],
    [false, 1],
    [false, 2],
    [true, 0],
  ]);
  expect(state.best).toEqual({ metric: 'eval/loss', value: 1, step: 4 });
  expect(() => noteBest(state, best, { 'eval/los': 1 })).toThrow('--metric-for-best-model eval/loss');
});
