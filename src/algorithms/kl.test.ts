import { describe, expect, it } from 'vitest';
import { noGrad, scope, tensor } from '../tensor/index.ts';
import { type KlEstimator, klTerms } from './kl.ts';

const policy = [0.5, 0.3, 0.15, 0.05];
const reference = [0.2, 0.35, 0.05, 0.4];
const logs = (p: number[]) => tensor(p.map(Math.log), { dtype: 'float64' });

/** E under πθ, summed over the whole alphabet. */
const expected = (kind: KlEstimator) =>
  scope(() =>
    klTerms(kind, logs(policy), logs(reference))
      .numbers()
      .reduce((sum, value, i) => sum + (policy[i] as number) * value, 0),
  );

describe('KL estimates', () => {
  const kl = policy.reduce((sum, p, i) => sum + p * Math.log(p / (reference[i] as number)), 0);

  it('have the expectation KL(πθ‖πref), k1 and k3', () => {
    expect(kl).toBeGreaterThan(0.2);
    expect(expected('k1')).toBeCloseTo(kl, 14);
    expect(expected('k3')).toBeCloseTo(kl, 14);
  });

  it('k2 is half the mean square of the log-ratio', () => {
    const half = policy.reduce((sum, p, i) => sum + (p * Math.log(p / (reference[i] as number)) ** 2) / 2, 0);
    expect(expected('k2')).toBeCloseTo(half, 14);
    expect(expected('k2')).not.toBeCloseTo(kl, 2);
  });

  it('k1 is positive where the policy likes a token more than the reference does', () => {
    expect(scope(() => klTerms('k1', tensor([-1]), tensor([-2])).item())).toBe(1);
  });

  it('k3 keeps its digits where the two almost agree', () => {
    // ℓ = 2⁻¹³: computed directly in f32, exp(−ℓ) + ℓ − 1 would be off by a tenth or more
    const value = scope(() => klTerms('k3', tensor([-1 + 2 ** -13]), tensor([-1])).item());
    const exact = 2 ** -27 - 2 ** -39 / 6;
    expect(Math.abs(value / exact - 1)).toBeLessThan(0.01);
    expect(scope(() => klTerms('k3', tensor([-1.25]), tensor([-1.25])).item())).toBe(0);
  });

  it('k2 and k3 in a loss pull as the KL does; k1 does not pull at all', () => {
    // θ are logits: ∂KL/∂θ_j = p_j·(ℓ_j − KL); a sampled loss gives E[k'(lp)·∇lp]
    const exact = policy.map((p, i) => p * (Math.log(p / (reference[i] as number)) - kl));
    const pull = (kind: KlEstimator) =>
      scope(() => {
        const lp = logs(policy).requiresGrad_();
        const terms = klTerms(kind, lp, logs(reference)).mul(tensor(policy, { dtype: 'float64' }));
        terms.sum().backward();
        const weight = noGrad(() => (lp.grad as NonNullable<typeof lp.grad>).numbers());
        const total = weight.reduce((sum, value) => sum + value, 0);
        return weight.map((value, i) => value - (policy[i] as number) * total);
      });
    pull('k2').forEach((value, i) => {
      expect(value).toBeCloseTo(exact[i] as number, 12);
    });
    pull('k1').forEach((value) => {
      expect(value).toBeCloseTo(0, 14);
    });
    // k3's gradient is that of the reversed KL(πref‖πθ), p − ref: the known price of its low variance
    pull('k3').forEach((value, i) => {
      expect(value).toBeCloseTo((policy[i] as number) - (reference[i] as number), 12);
    });
  });
});
