import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { liveTensors, scope, type Tensor, tensor } from '../../tensor/index.ts';
import { stepTotals } from '../aggregation.ts';
import { autograd, dealt, differences, expectClose, f64, random, sigmoid, sum } from '../checks.test-support.ts';
import { policyAlgorithm, policyAlgorithms } from '../index.ts';
import { combineMetrics, type Metrics } from '../metrics.ts';
import { segmentsOf } from '../segments.ts';
import type { PolicyOptions } from './options.ts';
import { definePolicyAlgorithm, type PolicyAlgorithm, type PolicyBatch, policyOptions } from './policy.ts';

const next = random(3);
const lengths = [3, 4, 2, 4, 1, 5, 2];
const n = sum(lengths);
const draw = (low: number, high: number, count = n) => Array.from({ length: count }, () => low + (high - low) * next());
const lp = draw(-3, -0.1);
const data = {
  lpOld: lp.map((value) => value + next() - 0.5),
  lpRef: lp.map((value) => value + 1.6 * next() - 0.8),
  entropy: draw(0.2, 2),
  valuesOld: draw(-1, 1),
  returns: draw(-2, 2),
  perResponse: draw(-1.5, 1.5, lengths.length),
};
const values = data.valuesOld.map((value) => value + 0.8 * (next() - 0.5));
const segmentOf = lengths.flatMap((length, i) => new Array<number>(length).fill(i));
const advantages = segmentOf.map((i) => data.perResponse[i] as number);
const totals = stepTotals(lengths, 10);

/** Options that switch on every part of the algorithm's loss. */
function switchedOn(algorithm: PolicyAlgorithm): PolicyOptions {
  const wide = algorithm.name === 'gspo' ? { clipLow: 0.05, clipHigh: 0.06 } : {};
  return policyOptions(algorithm, {
    entropyCoef: 0.03,
    ...(algorithm.klIn === 'loss' ? { klCoef: 0.07 } : {}),
    ...byAdvantage(algorithm),
    ...wide,
  });
}

/** The form of distillation that has advantages. opd.test.ts tests the other one. */
const byAdvantage = ({ needsTeacher }: PolicyAlgorithm) => (needsTeacher ? { distillAs: 'advantage' as const } : {});

/** The batch of some responses' tokens. */
function batchOf(members: readonly number[], lpAll: Tensor, entropyAll: Tensor, valuesAll: Tensor): PolicyBatch {
  const tokens = members.flatMap((member) => segmentOf.flatMap((id, t) => (id === member ? [t] : [])));
  const index = tensor(BigInt64Array.from(tokens, BigInt));
  const pick = (all: ArrayLike<number>) => f64(tokens.map((t) => all[t] as number));
  return {
    lp: lpAll.indexSelect(0, index),
    entropy: entropyAll.indexSelect(0, index),
    values: valuesAll.indexSelect(0, index),
    lpOld: pick(data.lpOld),
    lpRef: pick(data.lpRef),
    valuesOld: pick(data.valuesOld),
    returns: pick(data.returns),
    advantages: pick(advantages),
    segments: segmentsOf(
      members.map((member) => lengths[member] as number),
      lpAll,
    ),
  };
}
const everything = lengths.map((_, i) => i);
const lossAt = (algorithm: PolicyAlgorithm, options: PolicyOptions) => (a: Tensor, b: Tensor, c: Tensor) =>
  algorithm.loss(batchOf(everything, a, b, c), options, totals).loss;

const clip = (r: number, low: number, high: number) => Math.min(1 + high, Math.max(1 - low, r));
/** The papers' token terms in plain numbers. */
const terms: Record<string, (t: number, o: PolicyOptions) => number> = {
  reinforce: (t) => -at(advantages, t) * at(lp, t),
  grpo: (t, o) => surrogate(ratioAt(t), t, o),
  opd: (t) => -ratioAt(t) * at(advantages, t),
  gspo: (t, o) => {
    const mine = segmentOf.flatMap((id, k) => (id === segmentOf[t] ? [at(lp, k) - at(data.lpOld, k)] : []));
    return surrogate(Math.exp(sum(mine) / mine.length), t, o);
  },
  cispo: (t, o) => -clip(ratioAt(t), o.clipLow, o.clipHigh) * at(advantages, t) * at(lp, t),
  sapo: (t) => {
    const tau = at(advantages, t) > 0 ? 1 : 1.05;
    return (-4 / tau) * sigmoid(tau * (ratioAt(t) - 1)) * at(advantages, t);
  },
  ppo: (t, o) => {
    const [V, old, G] = [at(values, t), at(data.valuesOld, t), at(data.returns, t)];
    const near = old + Math.min(o.valueClip, Math.max(-o.valueClip, V - old));
    return surrogate(ratioAt(t), t, o) + o.valueCoef * 0.5 * Math.max((G - V) ** 2, (G - near) ** 2);
  },
};
for (const twin of ['rloo', 'maxrl', 'raft']) terms[twin] = terms.reinforce as (typeof terms)[string];
for (const twin of ['drgrpo', 'dapo']) terms[twin] = terms.grpo as (typeof terms)[string];
function at(list: ArrayLike<number>, t: number): number {
  return list[t] as number;
}
function ratioAt(t: number): number {
  return Math.exp(at(lp, t) - at(data.lpOld, t));
}
function surrogate(r: number, t: number, o: PolicyOptions): number {
  return -Math.min(r * at(advantages, t), clip(r, o.clipLow, o.clipHigh) * at(advantages, t));
}
function byHand(algorithm: PolicyAlgorithm, o: PolicyOptions): number {
  const weight = (t: number) => {
    if (algorithm.aggregation === 'token') return 1 / n;
    if (algorithm.aggregation === 'constant') return 1 / (lengths.length * 10);
    if (algorithm.aggregation === 'sum') return 1 / lengths.length;
    return 1 / (lengths.length * at(lengths, at(segmentOf, t)));
  };
  return sum(
    segmentOf.map((_, t) => {
      const l = at(lp, t) - at(data.lpRef, t);
      const kl = algorithm.klIn === 'loss' ? o.klCoef * (Math.exp(-l) + l - 1) : 0;
      const term = (terms[algorithm.name] as (t: number, o: PolicyOptions) => number)(t, o);
      return weight(t) * (term + kl - o.entropyCoef * at(data.entropy, t));
    }),
  );
}

describe.each(policyAlgorithms.map((algorithm) => [algorithm.name, algorithm] as const))('%s', (name, algorithm) => {
  const options = switchedOn(algorithm);
  const whole = autograd(lossAt(algorithm, options), lp, data.entropy, values);

  it('is the formula worked out in plain numbers', () => {
    expect(whole.value).toBeCloseTo(byHand(algorithm, options), 12);
  });

  it('has the gradient of that formula', () => {
    const f = lossAt(algorithm, options);
    const wanted = differences(f, lp, data.entropy, values);
    if (name === 'cispo') {
      // CISPO's weight is held fixed: −w·A/(tokens) + β·∂k3, which differences of the value cannot see
      wanted[0] = lp.map((value, t) => {
        const l = value - at(data.lpRef, t);
        const score = -clip(ratioAt(t), options.clipLow, options.clipHigh) * at(advantages, t);
        return (score + options.klCoef * (1 - Math.exp(-l))) / n;
      });
    }
    whole.gradients.forEach((gradient, i) => {
      expectClose(gradient, wanted[i] as number[], 1e-8, `${name} input ${i}`);
    });
  });

  it.each([1, 2, 5])('does not depend on a split into %i micro-batches or on their order', (parts) => {
    scope(() => {
      const leaves = [lp, data.entropy, values].map((list) => f64(list).requiresGrad_());
      const [a, b, c] = leaves as [Tensor, Tensor, Tensor];
      const made: Metrics[] = [];
      let loss = 0;
      for (const members of dealt(lengths.length, parts, random(parts))) {
        const part = algorithm.loss(batchOf(members, a, b, c), options, totals);
        part.loss.backward();
        loss += part.loss.item();
        made.push(part.metrics);
      }
      expect(loss).toBeCloseTo(whole.value, 13);
      leaves.forEach((leaf, i) => {
        expectClose(leaf.grad?.numbers() ?? new Array(n).fill(0), whole.gradients[i] as number[], 1e-14);
      });
      const one = combineMetrics([algorithm.loss(batchOf(everything, a, b, c), options, totals).metrics]);
      const many = combineMetrics(made);
      expect(Object.keys(many).sort()).toEqual(Object.keys(one).sort());
      for (const [key, value] of Object.entries(one)) expect(many[key], key).toBeCloseTo(value, 12);
    });
  });

  it('on policy has ratio exactly 1, nothing clipped and the gradient of −A·lp', () => {
    scope(() => {
      const plain = policyOptions(algorithm, {
        ...(algorithm.klIn === 'loss' ? { klCoef: 0 } : {}),
        ...(algorithm.needsValue ? { valueCoef: 0 } : {}),
        ...byAdvantage(algorithm),
      });
      const gradientOf = (other: PolicyAlgorithm, o: PolicyOptions) => {
        const leaf = tensor(lp).requiresGrad_();
        const fixed = (list: number[]) => tensor(list);
        const { loss, metrics } = other.loss(
          {
            lp: leaf,
            lpOld: leaf.detach(),
            advantages: fixed(advantages),
            values: fixed(values),
            valuesOld: fixed(values),
            returns: fixed(values),
            segments: segmentsOf(lengths, leaf),
          },
          o,
          totals,
        );
        loss.backward();
        return { gradient: (leaf.grad as Tensor).numbers(), metrics: combineMetrics([metrics]) };
      };
      const mine = gradientOf(algorithm, plain);
      const reinforce = policyAlgorithm('reinforce');
      const wanted = gradientOf(reinforce, policyOptions(reinforce, { aggregation: plain.aggregation }));
      expect(mine.metrics.ratio_max).toBe(1);
      expect(mine.metrics.ratio_mean).toBeCloseTo(1, 6);
      expect(mine.metrics.clip_fraction).toBe(0);
      expect(mine.metrics.old_kl).toBe(0);
      expectClose(mine.gradient, wanted.gradient, 1e-7);
    });
  });

  it('gets exactly nothing from advantages of 0', () => {
    scope(() => {
      const leaf = f64(lp).requiresGrad_();
      const zero = f64(new Array(n).fill(0));
      const value = f64(values);
      const { loss } = algorithm.loss(
        {
          lp: leaf,
          lpOld: f64(data.lpOld),
          advantages: zero,
          values: value,
          valuesOld: value,
          returns: value,
          segments: segmentsOf(lengths, leaf),
        },
        policyOptions(algorithm, { ...(algorithm.klIn === 'loss' ? { klCoef: 0 } : {}), ...byAdvantage(algorithm) }),
        totals,
      );
      loss.backward();
      expect(Math.abs(loss.item())).toBe(0);
      expect((leaf.grad as Tensor).numbers().every((gradient) => gradient === 0)).toBe(true);
    });
  });

  it('frees what it made', () => {
    scope(() => {
      const batch = batchOf(everything, f64(lp).requiresGrad_(), f64(data.entropy), f64(values));
      const before = liveTensors();
      const { loss, metrics } = algorithm.loss(batch, options, totals);
      expect(liveTensors() - before).toBe(1 + Object.keys(metrics).length);
      loss.dispose();
      for (const metric of Object.values(metrics)) metric.dispose();
      expect(liveTensors()).toBe(before);
    });
  });
});

describe('metrics', () => {
  it('count what the clip decides, and measure the ratios and both KLs', () => {
    const algorithm = policyAlgorithm('grpo');
    const options = policyOptions(algorithm);
    const got = scope(() =>
      combineMetrics([
        algorithm.loss(batchOf(everything, f64(lp), f64(data.entropy), f64(values)), options, totals).metrics,
      ]),
    );
    const ratios = lp.map((_, t) => ratioAt(t));
    const clipped = ratios.filter((r, t) => (r > 1.2 && at(advantages, t) > 0) || (r < 0.8 && at(advantages, t) < 0));
    const k3 = (l: number) => Math.exp(-l) + l - 1;
    expect(clipped.length).toBeGreaterThan(3);
    expect(got.clip_fraction).toBeCloseTo(clipped.length / n, 14);
    expect(got.ratio_mean).toBeCloseTo(sum(ratios) / n, 13);
    expect(got.ratio_max).toBe(Math.max(...ratios));
    expect(got.entropy).toBeCloseTo(sum(data.entropy) / n, 13);
    expect(got.kl).toBeCloseTo(sum(lp.map((value, t) => k3(value - at(data.lpRef, t)))) / n, 13);
    expect(got.old_kl).toBeCloseTo(sum(lp.map((value, t) => k3(at(data.lpOld, t) - value))) / n, 13);
  });

  it('of PPO add the value’s', () => {
    const algorithm = policyAlgorithm('ppo');
    const options = policyOptions(algorithm);
    const got = scope(() =>
      combineMetrics([
        algorithm.loss(batchOf(everything, f64(lp), f64(data.entropy), f64(values)), options, totals).metrics,
      ]),
    );
    expect((got.policy_loss as number) + (got.value_loss as number)).toBeCloseTo(got.loss as number, 13);
    expect(got.value_clip_fraction).toBeGreaterThan(0);
  });
});

describe('against TRL 1.13 (fixtures/trl_numbers.py)', () => {
  const trl = JSON.parse(readFileSync(new URL('../fixtures/trl.json', import.meta.url), 'utf8'));
  const spreadOver = (perResponse: number[]) =>
    trl.lengths.flatMap((length: number, i: number) => new Array(length).fill(perResponse[i]));
  // CISPO: TRL clips only from above, at ε_high itself. The paper's interval is [1 − ε_lo, 1 + ε_hi].
  const same: Record<string, Partial<PolicyOptions>> = {
    grpo: { klCoef: 0.04 },
    drgrpo: { klCoef: 0.04 },
    dapo: {},
    gspo: { klCoef: 0.04, clipLow: 0.05, clipHigh: 0.06 },
    sapo: {},
    cispo: { klCoef: 0.04, clipLow: 1e9, clipHigh: 0.3 },
    'grpo, KL times ratio': { klCoef: 0.04, klTimesRatio: true },
  };
  it.each(Object.keys(same))('%s has its value, gradient and metrics', (name) => {
    const algorithm = policyAlgorithm(name.split(',')[0] as string);
    const options = policyOptions(algorithm, same[name]);
    const wanted = trl.policy[name];
    scope(() => {
      const leaf = f64(trl.lp).requiresGrad_();
      const { loss, metrics } = algorithm.loss(
        {
          lp: leaf,
          lpOld: f64(trl.lpOld),
          lpRef: f64(trl.lpRef),
          entropy: f64(trl.entropy),
          advantages: f64(spreadOver(trl.advantages)),
          segments: segmentsOf(trl.lengths, leaf),
        },
        options,
        stepTotals(trl.lengths, 10),
      );
      loss.backward();
      const got = combineMetrics([metrics]);
      expect(loss.item()).toBeCloseTo(wanted.loss, 12);
      expectClose((leaf.grad as Tensor).numbers(), wanted.grad, 1e-12);
      expect(got.entropy).toBeCloseTo(wanted.metrics.entropy, 12);
      // with klTimesRatio TRL's metric is that of the weighted terms; ours stays the KL
      if (wanted.metrics.kl !== undefined && !options.klTimesRatio) expect(got.kl).toBeCloseTo(wanted.metrics.kl, 12);
      // TRL counts GSPO's clipped responses, we its clipped tokens
      const clipped = wanted.metrics['clip_ratio/region_mean'];
      if (clipped !== undefined && name !== 'gspo') expect(got.clip_fraction).toBeCloseTo(clipped, 7);
    });
  });
});

describe('a definition from JavaScript', () => {
  const words = { name: 'mine', summary: '', paper: '', advantage: 'group-z', aggregation: 'token', klIn: 'none' };
  it.each([
    [{ advantage: 'group-zz' }, /"mine" has the unknown advantage "group-zz".*group-z/],
    [{ aggregation: 'tokens' }, /unknown aggregation "tokens".*token/],
    [{ klIn: 'losses' }, /unknown klIn "losses".*loss/],
    [{ keeps: 'worst' }, /unknown keeps "worst".*best/],
    [{ advantage: 'teacher', klIn: 'loss' }, /a policy with a teacher has no KL to a reference/],
    [{ keeps: 'worst' }, /unknown keeps "worst".*best/],
  ])('is refused where a word is misspelt: %j', (change, message) => {
    const define = definePolicyAlgorithm as (definition: object) => unknown;
    expect(() => define({ ...words, ...change, terms: () => ({}) })).toThrow(message);
    expect(() => define({ ...words, terms: () => ({}) })).not.toThrow();
  });
});

it('says that the terms of an algorithm lack the policy', () => {
  const { advantage, aggregation, summary, paper } = policyAlgorithm('grpo');
  const empty = definePolicyAlgorithm({
    name: 'empty',
    ...{ summary, paper },
    advantage,
    aggregation,
    klIn: 'none',
    terms: (() => ({})) as never,
  });
  const before = liveTensors();
  const batch = () => ({ lp: tensor([-1, -2]), lpOld: tensor([-1, -2]) }) as never;
  expect(() => scope(() => empty.loss(batch(), policyOptions(empty), totals))).toThrow('`policy` is missing');
  expect(liveTensors()).toBe(before);
});

it('refuses options that are no numbers, where numbers are read', () => {
  const grpo = policyAlgorithm('grpo');
  expect(() => policyOptions(grpo, { clipLow: Number.NaN })).toThrow(/clip-low of grpo is NaN: expected a number/);
  expect(() => policyOptions(grpo, { klCoef: '0.1' as never })).toThrow(/kl-coef of grpo is 0.1: expected a number/);
  expect(() => policyOptions(grpo, { klTimesRatio: 1 as never })).toThrow(/expected a boolean/);
});
