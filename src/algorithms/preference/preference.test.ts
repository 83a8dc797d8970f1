import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.ts';
import { liveTensors, scope, type Tensor } from '../../tensor/index.ts';
import { autograd, dealt, differences, expectClose, f64, random, sigmoid, sum } from '../checks.test-support.ts';
import { preferenceLoss, preferenceLosses } from '../index.ts';
import { combineMetrics, type Metrics } from '../metrics.ts';
import { mismatchedBaseline, mismatchedPairs, pairsBaseline } from './kto.ts';
import {
  type PreferenceLoss,
  type PreferenceOptions,
  type PreferenceTotals,
  preferenceBatch,
  preferenceOptions,
} from './preference.ts';

const next = random(11);
const pairs = 7;
// chosen and rejected alternate in the packed batch
const lengths = Array.from({ length: 2 * pairs }, () => 1 + Math.floor(5 * next()));
const n = sum(lengths);
const lp = Array.from({ length: n }, () => -3 * next() - 0.05);
const lpRef = lp.map((value) => value + 1.4 * next() - 0.6);
const starts = lengths.map((_, i) => sum(lengths.slice(0, i)));
const chosen = Array.from({ length: pairs }, (_, i) => 2 * i);
const rejected = chosen.map((i) => i + 1);
const baseline = { chosen: 0.37, rejected: 0.21 };
const totals: PreferenceTotals = { chosen: pairs, rejected: pairs, baseline };

const of = (list: readonly number[], i: number) =>
  sum(list.slice(starts[i], (starts[i] as number) + (lengths[i] as number)));
const d = (i: number) => of(lp, i) - of(lpRef, i);
const length = (i: number) => lengths[i] as number;
const mean = (i: number) => of(lp, i) / length(i);
const nls = (x: number) => -Math.log(sigmoid(x));
const odds = (x: number) => Math.log(Math.exp(x) / (1 - Math.exp(x)));

/** The papers' losses of a pair (w, l) in plain numbers, with β, ε and the others from `changed`. */
const byHand: Record<string, (w: number, l: number) => number> = {
  dpo: (w, l) => nls(0.3 * (d(w) - d(l))),
  cdpo: (w, l) => 0.8 * nls(0.3 * (d(w) - d(l))) + 0.2 * nls(-0.3 * (d(w) - d(l))),
  robust: (w, l) => (0.8 * nls(0.3 * (d(w) - d(l))) - 0.2 * nls(-0.3 * (d(w) - d(l)))) / 0.6,
  hinge: (w, l) => Math.max(0, 1 - 0.3 * (d(w) - d(l))),
  ipo: (w, l) => (d(w) - d(l) - 1 / 0.6) ** 2,
  'dpo-norm': (w, l) => nls(0.3 * (d(w) / length(w) - d(l) / length(l))),
  simpo: (w, l) => nls(0.3 * (mean(w) - mean(l)) - 0.3 * 0.5),
  orpo: (w, l) => -mean(w) + 0.3 * nls(odds(mean(w)) - odds(mean(l))),
  // the mean over responses: half of the pair's sum
  kto: (w, l) => (1 - sigmoid(0.3 * (d(w) - 0.37)) + 1 - sigmoid(0.3 * (0.21 - d(l)))) / 2,
  'kto-pair': (w, l) => (1 - sigmoid(0.3 * (d(w) - 0.37)) + 1 - sigmoid(0.3 * (0.21 - d(l)))) / 2,
  'apo-zero': (w, l) => -sigmoid(0.3 * d(w)) + sigmoid(0.3 * d(l)),
  'apo-down': (w, l) => sigmoid(0.3 * d(w)) - sigmoid(0.3 * (d(w) - d(l))),
};
const changed = (algorithm: PreferenceLoss): Partial<PreferenceOptions> => ({
  beta: 0.3,
  ...(algorithm.defaults.labelSmoothing ? { labelSmoothing: 0.2 } : {}),
});

const lossAt =
  (algorithm: PreferenceLoss, options: PreferenceOptions, which = chosen) =>
  (all: Tensor) =>
    algorithm.loss(
      preferenceBatch({ lp: all, lpRef: f64(lpRef), lengths, chosen: which, rejected: which.map((i) => i + 1) }),
      options,
      totals,
    );

describe.each(preferenceLosses.map((algorithm) => [algorithm.name, algorithm] as const))('%s', (name, algorithm) => {
  const options = preferenceOptions(algorithm, changed(algorithm));
  const whole = autograd((all) => lossAt(algorithm, options)(all).loss, lp);

  it('is the paper’s formula worked out in plain numbers', () => {
    const wanted = sum(chosen.map((w) => (byHand[name] as (w: number, l: number) => number)(w, w + 1))) / pairs;
    expect(whole.value).toBeCloseTo(wanted, 12);
  });

  it('has the gradient of that formula', () => {
    const wanted = differences((all) => lossAt(algorithm, options)(all).loss, lp);
    expectClose(whole.gradients[0] as number[], wanted[0] as number[], 1e-8);
    expect(Math.max(...(whole.gradients[0] as number[]).map(Math.abs))).toBeGreaterThan(1e-3);
  });

  it.each([1, 2, 5])('does not depend on a split into %i micro-batches or on their order', (parts) => {
    scope(() => {
      const leaf = f64(lp).requiresGrad_();
      const made: Metrics[] = [];
      let loss = 0;
      for (const members of dealt(pairs, parts, random(parts))) {
        const part = lossAt(
          algorithm,
          options,
          members.map((i) => 2 * i),
        )(leaf);
        part.loss.backward();
        loss += part.loss.item();
        made.push(part.metrics);
      }
      expect(loss).toBeCloseTo(whole.value, 13);
      expectClose((leaf.grad as Tensor).numbers(), whole.gradients[0] as number[], 1e-14);
      const one = combineMetrics([lossAt(algorithm, options)(leaf).metrics]);
      const many = combineMetrics(made);
      expect(Object.keys(many).sort()).toEqual(Object.keys(one).sort());
      for (const [key, value] of Object.entries(one)) expect(many[key], key).toBeCloseTo(value, 12);
    });
  });

  it('frees what it made', () => {
    scope(() => {
      const leaf = f64(lp).requiresGrad_();
      const batch = preferenceBatch({ lp: leaf, lpRef: f64(lpRef), lengths, chosen, rejected });
      const before = liveTensors();
      const { metrics } = algorithm.loss(batch, options, totals);
      expect(liveTensors() - before).toBe(1 + Object.keys(metrics).length);
    });
  });

  it('asks for the reference exactly where it says so', () => {
    const without = () =>
      scope(() => {
        algorithm.loss(preferenceBatch({ lp: f64(lp), lengths, chosen, rejected }), options, totals);
      });
    if (algorithm.needsReference) expect(without).toThrow(/lpRef/);
    else expect(without).not.toThrow();
  });
});

describe('metrics', () => {
  it('are the means over the step', () => {
    const algorithm = preferenceLoss('dpo');
    const got = scope(() =>
      combineMetrics([lossAt(algorithm, preferenceOptions(algorithm, { beta: 0.3 }))(f64(lp)).metrics]),
    );
    const over = (f: (w: number) => number) => sum(chosen.map(f)) / pairs;
    expect(got.chosen_reward).toBeCloseTo(
      over((w) => 0.3 * d(w)),
      13,
    );
    expect(got.rejected_reward).toBeCloseTo(
      over((w) => 0.3 * d(w + 1)),
      13,
    );
    expect(got.margin).toBeCloseTo(
      over((w) => 0.3 * (d(w) - d(w + 1))),
      13,
    );
    expect(got.accuracy).toBeCloseTo(
      over((w) => (d(w) > d(w + 1) ? 1 : 0)),
      13,
    );
    expect(got.chosen_lp).toBeCloseTo(
      over((w) => of(lp, w)),
      13,
    );
    expect(got.rejected_lp).toBeCloseTo(
      over((w) => of(lp, w + 1)),
      13,
    );
    expect(got.chosen_length).toBeCloseTo(over(length), 13);
    expect(got.rejected_length).toBeCloseTo(
      over((w) => length(w + 1)),
      13,
    );
    expect(got.log_ratio).toBeCloseTo(
      over((w) => (d(w) + d(w + 1)) / 2),
      13,
    );
  });

  it('before the first step: every loss is at its start and the accuracy is that of a coin', () => {
    const algorithm = preferenceLoss('dpo');
    const got = scope(() => {
      const batch = preferenceBatch({ lp: f64(lp), lpRef: f64(lp), lengths, chosen, rejected });
      return combineMetrics([algorithm.loss(batch, preferenceOptions(algorithm), totals).metrics]);
    });
    expect(got.loss).toBeCloseTo(Math.LN2, 14);
    expect([got.accuracy, got.margin, got.log_ratio].map((value) => value?.toFixed(12))).toEqual([
      '0.500000000000',
      '0.000000000000',
      '0.000000000000',
    ]);
  });
});

describe('KTO', () => {
  const algorithm = preferenceLoss('kto');
  const options = preferenceOptions(algorithm, { beta: 0.3, desirableWeight: 1.2, undesirableWeight: 0.7 });
  const loss = (good: number[], bad: number[]) =>
    scope(() => {
      const leaf = f64(lp).requiresGrad_();
      const batch = preferenceBatch({ lp: leaf, lpRef: f64(lpRef), lengths, chosen: good, rejected: bad });
      const made = algorithm.loss(batch, options, {
        chosen: good.length,
        rejected: bad.length,
        baseline: mismatchedBaseline([1.5, -0.5, 0.5]),
      });
      made.loss.backward();
      return {
        loss: made.loss.item(),
        gradient: (leaf.grad as Tensor).numbers(),
        metrics: combineMetrics([made.metrics]),
      };
    });
  const good = (i: number) => 1.2 * (1 - sigmoid(0.3 * (d(i) - 0.5)));
  const bad = (i: number) => 0.7 * (1 - sigmoid(0.3 * (0.5 - d(i))));

  it('weighs unequal numbers of both classes', () => {
    const made = loss([0, 3, 5, 6], [1]);
    expect(made.loss).toBeCloseTo((sum([0, 3, 5, 6].map(good)) + bad(1)) / 5, 12);
    const right = [0, 3, 5, 6].filter((i) => d(i) > 0.5).length + (d(1) < 0.5 ? 1 : 0);
    expect(made.metrics.accuracy).toBeCloseTo(right / 5, 12);
  });

  it('takes a step with only one class', () => {
    const onlyGood = loss([0, 2], []);
    expect(onlyGood.loss).toBeCloseTo((good(0) + good(2)) / 2, 12);
    expect(onlyGood.metrics).not.toHaveProperty('rejected_reward');
    expect(onlyGood.metrics).not.toHaveProperty('margin');
    expect(onlyGood.gradient.every(Number.isFinite)).toBe(true);
    const onlyBad = loss([], [1, 4, 9]);
    expect(onlyBad.loss).toBeCloseTo((bad(1) + bad(4) + bad(9)) / 3, 12);
    expect(onlyBad.metrics).not.toHaveProperty('chosen_reward');
  });

  it('has z0 from mismatched pairs, never below 0', () => {
    expect(mismatchedBaseline([1, 2, 6])).toEqual({ chosen: 3, rejected: 3 });
    expect(mismatchedBaseline([-4, 1])).toEqual({ chosen: 0, rejected: 0 });
    expect(mismatchedBaseline([])).toEqual({ chosen: 0, rejected: 0 });
    expect(pairsBaseline([1, 3], [-1, -2])).toEqual({ chosen: 0, rejected: 2 });
  });

  it('mismatches prompts with responses of other prompts only', () => {
    expect(mismatchedPairs(['a', 'a', 'b', 'c'])).toEqual([
      [0, 2],
      [1, 2],
      [2, 3],
      [3, 0],
    ]);
    expect(mismatchedPairs(['a', 'a'])).toEqual([]);
  });

  it('says that z0 is missing', () => {
    const batch = () => preferenceBatch({ lp: f64(lp), lpRef: f64(lpRef), lengths, chosen, rejected });
    expect(() => scope(() => algorithm.loss(batch(), options, { chosen: 7, rejected: 7 }))).toThrow(/baseline/);
  });
});

describe('options', () => {
  it('refuse what would divide by 0 or has no effect', () => {
    expect(() => preferenceOptions(preferenceLoss('robust'), { labelSmoothing: 0.5 })).toThrow(UserError);
    expect(() => preferenceOptions(preferenceLoss('ipo'), { beta: 0 })).toThrow(UserError);
    expect(() => preferenceOptions(preferenceLoss('hinge'), { labelSmoothing: 0.1 })).toThrow(/no effect on hinge/);
  });

  it('IPO by token means, ORPO where a response is certain', () => {
    const ipo = preferenceLoss('ipo');
    const normal = preferenceOptions(ipo, { beta: 0.3, lengthNormalize: true });
    const value = scope(() => lossAt(ipo, normal)(f64(lp)).loss.item());
    const wanted = chosen.map((w) => (d(w) / length(w) - d(w + 1) / length(w + 1) - 1 / 0.6) ** 2);
    expect(value).toBeCloseTo(sum(wanted) / pairs, 12);

    const orpo = preferenceLoss('orpo');
    const certain = autograd((all) => lossAt(orpo, preferenceOptions(orpo))(all).loss, new Array(n).fill(0));
    expect([certain.value, ...(certain.gradients[0] as number[])].every(Number.isFinite)).toBe(true);
  });
});

describe('against TRL 1.13 (fixtures/trl_numbers.py)', () => {
  const trl = JSON.parse(readFileSync(new URL('../fixtures/trl.json', import.meta.url), 'utf8'));
  /** [TRL's name, our changes, what TRL adds to the loss]. */
  const same: [string, Partial<PreferenceOptions>, number][] = [
    ['sigmoid', { beta: 0.3 }, 0],
    ['hinge', { beta: 0.3 }, 0],
    // TRL divides IPO's log-ratios by length; the paper does not, so here it is an option
    ['ipo', { beta: 0.3, lengthNormalize: true }, 0],
    ['robust', { beta: 0.3, labelSmoothing: 0.1 }, 0],
    // TRL has 1 − σ instead of −σ, which differs by a constant without gradient
    ['apo_zero', { beta: 0.3 }, 1],
    ['apo_down', { beta: 0.3 }, 1],
    ['sigmoid_norm', { beta: 2 }, 0],
    ['kto', { beta: 0.3, desirableWeight: 1, undesirableWeight: 1.5 }, 0],
  ];
  it.each(same)('%s has its value and gradient', (name, changes, constant) => {
    const algorithm = preferenceLoss(name);
    const wanted = trl.direct[name];
    scope(() => {
      const leaf = f64(trl.lp).requiresGrad_();
      const batch = preferenceBatch({
        lp: leaf,
        lpRef: f64(trl.lpRef),
        lengths: trl.lengths,
        chosen: [0, 1, 2],
        rejected: [3, 4, 5],
      });
      const drift = trl.mismatched.map((value: number, i: number) => value - trl.mismatchedRef[i]);
      const { loss, metrics } = algorithm.loss(batch, preferenceOptions(algorithm, changes), {
        chosen: 3,
        rejected: 3,
        baseline: mismatchedBaseline(drift),
      });
      loss.backward();
      expect(loss.item() + constant).toBeCloseTo(wanted.loss, 12);
      expectClose((leaf.grad as Tensor).numbers(), wanted.grad, 1e-12);
      const got = combineMetrics([metrics]);
      // sigmoid_norm: TRL reports β·d, attune β·d/|y|, which the loss compares
      if (wanted.metrics !== undefined && !['ipo', 'sigmoid_norm'].includes(name)) {
        expect(got.chosen_reward).toBeCloseTo(wanted.metrics['rewards/chosen'], 12);
        expect(got.rejected_reward).toBeCloseTo(wanted.metrics['rewards/rejected'], 12);
        expect(got.margin).toBeCloseTo(wanted.metrics['rewards/margins'], 12);
        expect(got.accuracy).toBeCloseTo(wanted.metrics['rewards/accuracies'], 7);
        expect(got.chosen_lp).toBeCloseTo(wanted.metrics['logps/chosen'], 12);
      }
      if (wanted.kl !== undefined) expect(mismatchedBaseline(drift).chosen).toBeCloseTo(wanted.kl, 12);
    });
  });
});
