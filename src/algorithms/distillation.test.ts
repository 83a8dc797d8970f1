import { describe, expect, it } from 'vitest';
import { scope } from '../tensor/index.ts';
import { autograd, differences, expectClose, f64 } from './checks.test-support.ts';
import { distillationLoss } from './distillation.ts';
import { combineMetrics } from './metrics.ts';

const kl = [0.2, 1.5, 0.1];
const lp = [-0.7, -2, -0.1];

describe('distillation on given text', () => {
  it('weighs the text and T² times the teacher, over the tokens of the step', () => {
    const of = (share: number, temperature: number): Record<string, number> =>
      scope(() => {
        const totals = { tokens: 6 };
        const { loss, metrics } = distillationLoss({ kl: f64(kl), lp: f64(lp) }, { share, temperature }, totals);
        return { loss: loss.item(), ...combineMetrics([metrics]) };
      });
    const teacherAlone = of(1, 1);
    for (const [name, value] of Object.entries({ loss: 1.8, nll: 2.8, teacher_kl: 1.8 }))
      expect(teacherAlone[name]).toBeCloseTo(value / 6, 14);
    expect(of(0, 1).loss).toBeCloseTo(2.8 / 6, 14);
    expect(of(0.25, 1).loss).toBeCloseTo((0.75 * 2.8 + 0.25 * 1.8) / 6, 14);
    const soft = of(0.25, 2);
    expect(soft.loss).toBeCloseTo((0.75 * 2.8 + 0.25 * 4 * 1.8) / 6, 14);
    // metrics are not weighted by α
    expect([soft.teacher_kl, soft.nll]).toEqual([teacherAlone.teacher_kl, teacherAlone.nll]);
  });

  it('has the gradient of that formula, and none for the text where it has no share', () => {
    const loss = (share: number) => (a: ReturnType<typeof f64>, b: ReturnType<typeof f64>) =>
      distillationLoss({ kl: a, lp: b }, { share, temperature: 1.5 }, { tokens: 3 }).loss;
    for (const share of [0.4, 1]) {
      const wanted = differences(loss(share), kl, lp);
      for (const [i, gradient] of autograd(loss(share), kl, lp).gradients.entries())
        expectClose(gradient, wanted[i] as number[], 1e-8);
    }
    expect(autograd(loss(1), kl, lp).gradients[1]).toEqual([0, 0, 0]);
  });
});
