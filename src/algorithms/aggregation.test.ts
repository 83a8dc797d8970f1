import { describe, expect, it } from 'vitest';
import { liveTensors, scope, type Tensor } from '../tensor/index.ts';
import { type Aggregation, aggregate, stepTotals } from './aggregation.ts';
import { autograd, expectClose, f64 } from './checks.test-support.ts';
import { combineMetrics, exactAccuracies } from './metrics.ts';
import { lengthsOf, repeatOverTokens, segmentMean, segmentSum, segmentsOf } from './segments.ts';
import { sftLoss } from './sft.ts';

const terms = [1, 2, 3, 10, 20, 7];
const lengths = [3, 2, 1];

describe('aggregation', () => {
  const totals = stepTotals(lengths, 8);
  it('counts the step', () => expect(totals).toEqual({ tokens: 6, sequences: 3, maxNewTokens: 8 }));

  it.each<[Aggregation, number, number[]]>([
    ['token', 43 / 6, new Array(6).fill(1 / 6)],
    ['sequence', (2 + 15 + 7) / 3, [1 / 9, 1 / 9, 1 / 9, 1 / 6, 1 / 6, 1 / 3]],
    ['constant', 43 / 24, new Array(6).fill(1 / 24)],
    ['sum', 43 / 3, new Array(6).fill(1 / 3)],
  ])('%s', (kind, value, weights) => {
    const made = autograd((x) => aggregate(x, kind, segmentsOf(lengths, x), totals), terms);
    expect(made.value).toBeCloseTo(value, 14);
    expectClose(made.gradients[0] as number[], weights, 1e-15);
  });

  it('refuses a step without a count', () => {
    const x = () => f64(terms);
    expect(() => scope(() => aggregate(x(), 'token', segmentsOf(lengths, x()), stepTotals([], 8)))).toThrow(
      /whole step/,
    );
  });
});

describe('segments', () => {
  it('sum, average and spread', () => {
    scope(() => {
      const x = f64(terms);
      const segments = segmentsOf(lengthsOf([0, 3, 5, 6]), x);
      expect(segmentSum(x, segments).numbers()).toEqual([6, 30, 7]);
      expect(segmentMean(x, segments).numbers()).toEqual([2, 15, 7]);
      expect(repeatOverTokens(f64([1, 2, 3]), segments).numbers()).toEqual([1, 1, 1, 2, 2, 3]);
    });
  });

  it('an empty response sums and averages to 0', () => {
    scope(() => {
      const x = f64([5, 7]);
      const segments = segmentsOf([1, 0, 1], x);
      expect(segmentSum(x, segments).numbers()).toEqual([5, 0, 7]);
      expect(segmentMean(x, segments).numbers()).toEqual([5, 0, 7]);
    });
  });
});

describe('metrics', () => {
  it('add up; those called _max take the largest; what some micro-batches lack does not matter', () => {
    const got = scope(() =>
      combineMetrics([
        { kl: f64([1]).sum(), ratio_max: f64([3]).sum() },
        { kl: f64([2]).sum(), ratio_max: f64([2]).sum(), x: f64([9]).sum() },
      ]),
    );
    expect(got).toEqual({ kl: 3, ratio_max: 3, x: 9 });
    expect(combineMetrics([])).toEqual({});
  });

  it('gives accuracies as quotients of counts, whatever float32 made of their shares', () => {
    const third = Math.fround(1 / 3);
    expect(exactAccuracies({ accuracy: 3 * third, loss: 3 * third }, 3)).toEqual({ accuracy: 1, loss: 3 * third });
    const halves = { accuracy: Math.fround(2.5 / 49), step_accuracy: 49 * Math.fround(1 / 49), accuracy_drop: 0.1 };
    expect(exactAccuracies(halves, 49)).toEqual({ accuracy: 2.5 / 49, step_accuracy: 1, accuracy_drop: 0.1 });
    expect(exactAccuracies({ accuracy: 0.3 }, undefined)).toEqual({ accuracy: 0.3 });
  });
});

describe('SFT', () => {
  const lp = [-1, -0.5, -2, -0.25];
  it('is the token mean over the step, however it is split', () => {
    const whole = autograd((x) => sftLoss({ lp: x }, { tokens: 4 }).loss, lp);
    expect(whole.value).toBe(3.75 / 4);
    expect(whole.gradients[0]).toEqual([-0.25, -0.25, -0.25, -0.25]);
    scope(() => {
      const x = f64(lp).requiresGrad_();
      const cut = (from: number, to: number) => {
        const lp = x.slice(0, from, to);
        return { lp, entropy: lp.detach().neg() };
      };
      const batches = [cut(2, 4), cut(0, 2)];
      const before = liveTensors();
      const parts = batches.map((batch) => sftLoss(batch, { tokens: 4 }));
      expect(liveTensors() - before).toBe(2 * 3);
      for (const part of parts) part.loss.backward();
      expect((x.grad as Tensor).numbers()).toEqual(whole.gradients[0]);
      expect(combineMetrics(parts.map((part) => part.metrics))).toEqual({ loss: 3.75 / 4, entropy: 3.75 / 4 });
    });
  });
});
