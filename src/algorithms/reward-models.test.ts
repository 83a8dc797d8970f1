import { describe, expect, it } from 'vitest';
import { scope, type Tensor, tensor } from '../tensor/index.ts';
import { autograd, differences, expectClose, f64, sigmoid, sum } from './checks.test-support.ts';
import { combineMetrics } from './metrics.ts';
import { outcomeRewardLoss, preferenceRewardLoss, processRewardLoss } from './reward-models.ts';
import { segmentsOf } from './segments.ts';

// The values marked as PyTorch's come from torch 2.13's logsigmoid, binary_cross_entropy_with_logits and cross_entropy.
const nls = (x: number) => -Math.log(sigmoid(x));

describe('preference reward loss', () => {
  const chosen = [1.2, -0.4, 0.3, 2];
  const rejected = [0.7, 0.1, 0.9, -1.5];
  const margin = [0.5, 0, 0.2, 1];
  const loss = (w: Tensor, l: Tensor, options = {}, part = [0, 4], withMargin = true) => {
    const cut = (x: Tensor) => x.slice(0, part[0], part[1]);
    return preferenceRewardLoss(
      { chosen: cut(w), rejected: cut(l), margin: withMargin ? cut(f64(margin)) : undefined },
      { pairs: 4 },
      options,
    );
  };

  it('is PyTorch’s with margin and centring', () => {
    const made = autograd((w, l) => loss(w, l, { centring: 0.01 }).loss, chosen, rejected);
    expect(made.value).toBeCloseTo(0.7427786412450949, 13);
    expectClose(
      made.gradients[0] as number[],
      [-0.1155, -0.15711483280046362, -0.16649362028190312, -0.01646454500531089],
      1e-13,
    );
    expectClose(
      made.gradients[1] as number[],
      [0.1345, 0.15411483280046362, 0.17849362028190313, 0.02146454500531089],
      1e-13,
    );
  });

  it('is the formula by hand with label smoothing, and has its gradient', () => {
    const options = { labelSmoothing: 0.1, centring: 0.02 };
    const f = (w: Tensor, l: Tensor) => loss(w, l, options, [0, 4], false).loss;
    const made = autograd(f, chosen, rejected);
    const wanted = chosen.map((w, i) => {
      const l = rejected[i] as number;
      return 0.9 * nls(w - l) + 0.1 * nls(l - w) + 0.02 * (w + l) ** 2;
    });
    expect(made.value).toBeCloseTo(sum(wanted) / 4, 13);
    differences(f, chosen, rejected).forEach((gradient, i) => {
      expectClose(made.gradients[i] as number[], gradient, 1e-8);
    });
  });

  it('adds up over micro-batches, metrics too', () => {
    const whole = autograd((w, l) => loss(w, l).loss, chosen, rejected);
    scope(() => {
      const [w, l] = [f64(chosen).requiresGrad_(), f64(rejected).requiresGrad_()];
      const parts = [
        [1, 4],
        [0, 1],
      ].map((part) => loss(w, l, {}, part));
      for (const part of parts) part.loss.backward();
      expectClose((w.grad as Tensor).numbers(), whole.gradients[0] as number[], 1e-15);
      const got = combineMetrics(parts.map((part) => part.metrics));
      expect(got.loss).toBeCloseTo(whole.value, 13);
      expect(got.accuracy).toBe(0.5);
      expect(got.chosen_reward).toBeCloseTo(3.1 / 4, 13);
      expect(got.rejected_reward).toBeCloseTo(0.2 / 4, 13);
      expect(got.margin).toBeCloseTo(2.9 / 4, 13);
    });
  });
});

describe('outcome reward loss', () => {
  const logits = [0.3, -1.2, 2.5, 0.8, -0.6, 40, -3];
  const lengths = [3, 3, 1];
  const correct = [1, 0, 1];
  const loss = (x: Tensor) =>
    outcomeRewardLoss(
      { logits: x, correct: f64(correct), segments: segmentsOf(lengths, x) },
      { tokens: 7, correct: 2, incorrect: 1 },
    );

  it('is PyTorch’s on every response token', () => {
    const made = autograd((x) => loss(x).loss, logits);
    expect(made.value).toBeCloseTo(6.679100487729501, 12);
    const wanted = [
      -0.06079392616976299, -0.10978925478557396, -0.010836882860177635, 0.09856778301823035, 0.05062052768202922,
      0.14285714285714285, -0.13608201811749046,
    ];
    expectClose(made.gradients[0] as number[], wanted, 1e-13);
  });

  it('scores at the last token', () => {
    const got = scope(() => combineMetrics([loss(f64(logits)).metrics]));
    expect(got.accuracy).toBeCloseTo(1 / 3, 13);
    expect(got.correct_score).toBeCloseTo((sigmoid(2.5) + sigmoid(-3)) / 2, 13);
    expect(got.incorrect_score).toBeCloseTo(1, 13);
  });

  it('adds up over micro-batches', () => {
    const whole = autograd((x) => loss(x).loss, logits);
    scope(() => {
      const x = f64(logits).requiresGrad_();
      const totals = { tokens: 7, correct: 2, incorrect: 1 };
      const part = (from: number, to: number, members: number[]) =>
        outcomeRewardLoss(
          {
            logits: x.slice(0, from, to),
            correct: f64(members.map((i) => correct[i] as number)),
            segments: segmentsOf(
              members.map((i) => lengths[i] as number),
              x,
            ),
          },
          totals,
        );
      const parts = [part(3, 7, [1, 2]), part(0, 3, [0])];
      for (const { loss } of parts) loss.backward();
      expectClose((x.grad as Tensor).numbers(), whole.gradients[0] as number[], 1e-15);
      const got = combineMetrics(parts.map(({ metrics }) => metrics));
      for (const [key, value] of Object.entries(combineMetrics([loss(x).metrics])))
        expect(got[key], key).toBeCloseTo(value, 13);
    });
  });
});

describe('process reward loss', () => {
  const logits = [0.2, -0.5, 1.1, 2, 0.3, -1, 0.1, 0.4, 0.3, -0.7, 1.5, 0.2];
  const loss = (x: Tensor) =>
    processRewardLoss({ logits: x.reshape(4, 3), labels: tensor([1, -1, 1, 0]) }, { steps: 4 });

  it('is PyTorch’s, with −1, 0, +1 as classes 0, 1, 2', () => {
    const made = autograd((x) => loss(x).loss, logits);
    expect(made.value).toBeCloseTo(0.5204294837990214, 13);
    const wanted = [
      0.06319213692031987, 0.03138028650980539, -0.09457242343012529, -0.04715540351433889, 0.03705636572105553,
      0.010099037793283385, 0.07000327346464344, 0.09449453524540044, -0.16449780871004388, 0.020024643751408236,
      -0.06927731982218152, 0.04925267607077327,
    ];
    expectClose(made.gradients[0] as number[], wanted, 1e-13);
  });

  it('counts the steps it gets right', () => {
    expect(scope(() => combineMetrics([loss(f64(logits)).metrics]).step_accuracy)).toBe(0.75);
  });

  it('is its whole-step share for a part of the steps', () => {
    const half = autograd(
      (x) => processRewardLoss({ logits: x.reshape(4, 3).slice(0, 0, 2), labels: tensor([1, -1]) }, { steps: 4 }).loss,
      logits,
    );
    const whole = autograd((x) => loss(x).loss, logits);
    expectClose((half.gradients[0] as number[]).slice(0, 6), (whole.gradients[0] as number[]).slice(0, 6), 1e-15);
  });
});
