import { describe, expect, it } from 'vitest';
import { gae } from './gae.ts';

const lengths = [4, 1, 3];
const rewards = [2, -1, 0.5];
const values = [0.3, -0.2, 0.8, 0.1, 0.4, 1, -0.5, 0.25];
const k1 = [0.1, -0.3, 0.2, 0.05, 0.6, -0.1, 0, 0.4];

/** The definition: A_t = Σ_k (γλ)^k δ_{t+k}, each sum written out. */
function direct(gamma: number, lambda: number, klCoef: number): number[] {
  const out: number[] = [];
  let start = 0;
  lengths.forEach((length, i) => {
    const V = [...values.slice(start, start + length), 0];
    const r = k1
      .slice(start, start + length)
      .map((kl, t) => -klCoef * kl + (t === length - 1 ? (rewards[i] as number) : 0));
    for (let t = 0; t < length; t++) {
      let sum = 0;
      for (let k = 0; t + k < length; k++) {
        const delta = (r[t + k] as number) + gamma * (V[t + k + 1] as number) - (V[t + k] as number);
        sum += (gamma * lambda) ** k * delta;
      }
      out.push(sum);
    }
    start += length;
  });
  return out;
}

describe('GAE', () => {
  it.each([
    [1, 0.95, 0.1],
    [0.9, 0.8, 0.05],
    [1, 0, 0],
    [0.99, 1, 0.2],
  ])('is the sum formula at γ %f, λ %f, klCoef %f', (gamma, lambda, klCoef) => {
    const { advantages, returns } = gae({ rewards, lengths, values, k1 }, { gamma, lambda, klCoef, whiten: false });
    direct(gamma, lambda, klCoef).forEach((wanted, t) => {
      expect(advantages[t]).toBeCloseTo(wanted, 12);
      expect(returns[t]).toBeCloseTo(wanted + (values[t] as number), 12);
    });
  });

  it('with γ = λ = 1 the return is the reward still to come', () => {
    const { returns } = gae({ rewards, lengths, values }, { gamma: 1, lambda: 1, klCoef: 0.3, whiten: false });
    [2, 2, 2, 2, -1, 0.5, 0.5, 0.5].forEach((wanted, t) => {
      expect(returns[t]).toBeCloseTo(wanted, 12);
    });
  });

  it('whitens advantages over the step and leaves returns alone', () => {
    const plain = gae({ rewards, lengths, values }, { gamma: 1, lambda: 0.95, klCoef: 0, whiten: false });
    const white = gae({ rewards, lengths, values }, { gamma: 1, lambda: 0.95, klCoef: 0, whiten: true });
    expect(white.returns).toEqual(plain.returns);
    const n = values.length;
    const mean = plain.advantages.reduce((a, b) => a + b) / n;
    const std = Math.sqrt(plain.advantages.reduce((a, b) => a + (b - mean) ** 2, 0) / (n - 1));
    white.advantages.forEach((value, t) => {
      expect(value).toBeCloseTo(((plain.advantages[t] as number) - mean) / std, 6);
    });
  });
});

it('refuses numbers of other lengths', () => {
  const options = { gamma: 1, lambda: 1, klCoef: 0, whiten: false };
  expect(() => gae({ rewards: [1], lengths: [3], values: [1] }, options)).toThrow('1 values for 3 tokens');
  expect(() => gae({ rewards: [1, 2], lengths: [1], values: [1] }, options)).toThrow('2 rewards for 1 responses');
  expect(() => gae({ rewards: [1], lengths: [1], values: [1], k1: [] }, options)).toThrow('k1 has 0 numbers');
});
