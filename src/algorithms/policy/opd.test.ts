/** On-policy distillation on vocabularies small enough to sum over every token. */
import { describe, expect, it } from 'vitest';
import { gradients, scope, type Tensor, tensor } from '../../tensor/index.ts';
import { stepTotals } from '../aggregation.ts';
import { expectClose, f64, random, sum } from '../checks.test-support.ts';
import { policyAdvantages } from '../index.ts';
import { combineMetrics } from '../metrics.ts';
import { segmentsOf } from '../segments.ts';
import { opd } from './opd.ts';
import { policyOptions } from './policy.ts';

const next = random(11);
const words = 5;
const table = (states: number) => Array.from({ length: states * words }, () => 3 * next() - 1.5);
const logits = table(3);
const teacherLogits = table(3);
const asLoss = policyOptions(opd);
const asAdvantage = policyOptions(opd, { distillAs: 'advantage' });

const logSoftmax = (flat: readonly number[]): number[][] =>
  scope(
    () =>
      tensor(Float64Array.from(flat), { shape: [flat.length / words, words] })
        .logSoftmax(-1)
        .tolist() as never,
  );
const rowsOf = (leaf: Tensor) => leaf.reshape(-1, words).logSoftmax(-1);

/** KL(π‖teacher) of each state, with its gradient for the logits. */
function klOf(leaf: Tensor): Tensor {
  const p = rowsOf(leaf);
  return p
    .exp()
    .mul(p.sub(rowsOf(f64(teacherLogits))))
    .sum(-1);
}

/** Loss, gradient and metrics when each of these states is followed by the given token. */
function lossOf(states: readonly number[], tokens: readonly number[], options: typeof asLoss, old = logits) {
  return scope(() => {
    const leaf = f64(logits).requiresGrad_();
    const places = tensor(BigInt64Array.from(states, (state, t) => BigInt(state * words + (tokens[t] as number))));
    const [p, q] = [logSoftmax(old), logSoftmax(teacherLogits)];
    const of = (all: number[][]) => states.map((state, t) => all[state]?.[tokens[t] as number] as number);
    const [lpOld, lpTeacher] = [of(p), of(q)];
    const lengths = states.map(() => 1);
    const advantages = policyAdvantages(opd, options, {
      ...{ rewards: lengths.map(() => 0), groups: states, lengths },
      teacher: lpTeacher.map((value, t) => value - (lpOld[t] as number)),
    }).perToken;
    const lp = rowsOf(leaf).flatten().indexSelect(0, places);
    const { loss, metrics } = opd.loss(
      {
        ...{ lp, lpOld: f64(lpOld), advantages: f64(advantages), segments: segmentsOf(lengths, lp) },
        teacherKl: klOf(leaf).indexSelect(0, tensor(BigInt64Array.from(states, BigInt))),
      },
      options,
      stepTotals(lengths, 1),
    );
    const [gradient] = gradients([loss], [leaf]) as [Tensor];
    return { loss: loss.item(), gradient: Array.from(gradient.numbers()), metrics: combineMetrics([metrics]) };
  });
}

describe('on-policy distillation', () => {
  it('as a loss is the KL itself, worked out in plain numbers', () => {
    const [p, q] = [logSoftmax(logits), logSoftmax(teacherLogits)];
    const kl = p.map((row, s) => sum(row.map((lp, w) => Math.exp(lp) * (lp - (q[s]?.[w] as number)))));
    const { loss, gradient, metrics } = lossOf([0, 1, 2, 1], [4, 0, 3, 2], asLoss);
    expect(loss).toBeCloseTo(((kl[0] as number) + 2 * (kl[1] as number) + (kl[2] as number)) / 4, 12);
    expect(metrics.teacher_kl).toBeCloseTo(loss, 12);
    // ∂KL/∂z = p·(log p − log q − KL)
    const wanted = p.flatMap((row, s) =>
      row.map((lp, w) => ((s === 1 ? 2 : 1) / 4) * Math.exp(lp) * (lp - (q[s]?.[w] as number) - (kl[s] as number))),
    );
    expectClose(gradient, wanted, 1e-12);
  });

  it('as an advantage has the same gradient in the mean over the tokens that the policy draws', () => {
    const p = logSoftmax(logits);
    const mean = new Array<number>(logits.length).fill(0);
    let value = 0;
    for (const [state, row] of p.entries())
      for (const [token, lp] of row.entries()) {
        // a sample of the policy's own distribution: each state once, each token in proportion to its probability
        const { loss, gradient } = lossOf([state], [token], asAdvantage);
        const probability = Math.exp(lp) / p.length;
        value += probability * loss;
        gradient.forEach((g, i) => {
          mean[i] = (mean[i] as number) + probability * g;
        });
      }
    const exact = lossOf([0, 1, 2], [0, 0, 0], asLoss);
    expectClose(mean, exact.gradient, 1e-12);
    expect(value).toBeCloseTo(exact.loss, 12);
    // A single sample is far from it. That is the variance which the full-vocabulary loss does not have.
    const one = lossOf([0, 1, 2], [0, 0, 0], asAdvantage).gradient;
    expect(Math.max(...one.map((g, i) => Math.abs(g - (exact.gradient[i] as number))))).toBeGreaterThan(0.1);
  });

  it('as an advantage weighs a draw of an older policy by its ratio', () => {
    const old = logits.map((value, i) => value + 0.3 * Math.sin(i));
    const [p, q, before] = [logSoftmax(logits), logSoftmax(teacherLogits), logSoftmax(old)];
    const at = (all: number[][]) => all[1]?.[3] as number;
    const { loss } = lossOf([1], [3], asAdvantage, old);
    expect(loss).toBeCloseTo(-Math.exp(at(p) - at(before)) * (at(q) - at(before)), 12);
  });

  it.each(['loss', 'advantage'] as const)('as %s ends at the teacher’s distribution', (distillAs) => {
    const options = policyOptions(opd, { distillAs });
    const draw = random(2);
    let policy = [...logits];
    const target = logSoftmax(teacherLogits);
    for (let step = 0; step < 600; step++) {
      const p = logSoftmax(policy);
      const states = Array.from({ length: 48 }, (_, i) => i % 3);
      const tokens = states.map((state) => {
        const point = draw();
        const row = p[state] as number[];
        const found = row.findIndex((_, i) => sum(row.slice(0, i + 1).map(Math.exp)) > point);
        return found < 0 ? words - 1 : found;
      });
      const gradient = scope(() => {
        const leaf = f64(policy).requiresGrad_();
        const places = tensor(BigInt64Array.from(states, (state, t) => BigInt(state * words + (tokens[t] as number))));
        const lp = rowsOf(leaf).flatten().indexSelect(0, places);
        const gap = states.map(
          (state, t) => (target[state]?.[tokens[t] as number] as number) - (p[state]?.[tokens[t] as number] as number),
        );
        const { loss } = opd.loss(
          {
            ...{ lp, lpOld: lp.detach(), advantages: f64(gap) },
            segments: segmentsOf(
              states.map(() => 1),
              lp,
            ),
            teacherKl: klOf(leaf).indexSelect(0, tensor(BigInt64Array.from(states, BigInt))),
          },
          options,
          stepTotals(
            states.map(() => 1),
            1,
          ),
        );
        return Array.from((gradients([loss], [leaf]) as [Tensor])[0].numbers());
      });
      policy = policy.map((value, i) => value - 3 * (gradient[i] as number));
    }
    const reached = logSoftmax(policy).flat();
    const off = reached.map((lp, i) => Math.abs(Math.exp(lp) - Math.exp(target.flat()[i] as number)));
    expect(Math.max(...off)).toBeLessThan(distillAs === 'loss' ? 1e-6 : 0.02);
  });

  it('says what it lacks', () => {
    const lp = tensor([-1]);
    const batch = { lp, lpOld: lp, advantages: tensor([0]), segments: segmentsOf([1], lp) };
    expect(() => opd.loss(batch, asLoss, stepTotals([1], 1))).toThrow('needs "teacherKl"');
  });
});
