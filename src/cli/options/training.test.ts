import { expect, it } from 'vitest';
import { withOtherNames } from '../../rollouts/metrics.ts';
import { evaluationLine } from './training.ts';

it('a line of an evaluation has every measure once, though some are stored under two names', () => {
  const metrics = Object.entries(withOtherNames({ reward: 0.5, kl: 0.25, accuracy: 1 }));
  const named = Object.fromEntries(metrics.map(([name, value]) => [`eval/${name}`, value]));
  expect(evaluationLine(3, { ...named, 'train/loss': 2 })).toBe('step 3  held-out: reward 0.5  kl 0.25  accuracy 1');
  expect(evaluationLine(3, { 'eval/kl_div': 0.25 })).toBe('step 3  held-out: kl_div 0.25');
});
