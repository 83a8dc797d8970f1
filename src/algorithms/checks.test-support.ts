/**
 * Shared by the tests of losses: gradients by autograd and by differences, reproducible random numbers, comparison of
 * lists.
 */
import { expect } from 'vitest';
import { scope, type Tensor, tensor } from '../tensor/index.ts';

export const f64 = (values: ArrayLike<number>): Tensor => tensor(Float64Array.from(values));

/** Value and gradient of a scalar function of vectors, by autograd. */
export function autograd(
  f: (...inputs: Tensor[]) => Tensor,
  ...at: readonly ArrayLike<number>[]
): { value: number; gradients: number[][] } {
  return scope(() => {
    const leaves = at.map((values) => f64(values).requiresGrad_());
    const value = f(...leaves);
    if (value.requiresGrad) value.backward();
    return {
      value: value.item(),
      gradients: leaves.map((leaf) => leaf.grad?.numbers() ?? new Array(leaf.numel).fill(0)),
    };
  });
}

/** The same gradient by central differences. */
export function differences(f: (...inputs: Tensor[]) => Tensor, ...at: readonly ArrayLike<number>[]): number[][] {
  const h = 1e-6;
  const value = (inputs: readonly ArrayLike<number>[]) => scope(() => f(...inputs.map(f64)).item());
  return at.map((values, which) =>
    Array.from(values, (_, i) => {
      const moved = (by: number) =>
        at.map((other, k) => Array.from(other, (v, j) => (k === which && j === i ? v + by : v)));
      return (value(moved(h)) - value(moved(-h))) / (2 * h);
    }),
  );
}

export function expectClose(actual: ArrayLike<number>, wanted: ArrayLike<number>, tolerance: number, what = ''): void {
  expect(actual.length).toBe(wanted.length);
  for (let i = 0; i < wanted.length; i++) {
    const [a, w] = [actual[i] as number, wanted[i] as number];
    expect(Math.abs(a - w), `${what} [${i}]: ${a} instead of ${w}`).toBeLessThanOrEqual(
      tolerance * Math.max(1, Math.abs(w)),
    );
  }
}

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** 0…count−1 in a shuffled order, dealt into `parts` lists. */
export function dealt(count: number, parts: number, next: () => number): number[][] {
  const order = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1));
    [order[i], order[j]] = [order[j] as number, order[i] as number];
  }
  const out: number[][] = Array.from({ length: parts }, () => []);
  order.forEach((item, i) => {
    out[i % parts]?.push(item);
  });
  return out;
}

export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
export const sum = (values: ArrayLike<number>): number => Array.from(values).reduce((a, b) => a + b, 0);
