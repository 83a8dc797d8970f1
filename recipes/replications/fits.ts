/**
 * Least squares for forms that are linear in their coefficients, with bootstrap intervals:
 *
 *     leastSquares(points, bestOfNForm)      // R(d) = d(α − βd), Gao et al. 2022, best of n
 *     leastSquares(points, rlForm)           // R(d) = d(α − β log d), RL and direct alignment
 */
import { Random } from '../../src/random.ts';

export interface Point {
  /** √KL to the start. */
  d: number;
  /** What was gained over the start. */
  gain: number;
  seed: number;
}

/** R(d) = α·f(d) − β·g(d). */
export interface Form {
  name: string;
  terms: (d: number) => readonly [number, number];
}

export const bestOfNForm: Form = { name: 'd(α − βd)', terms: (d) => [d, -d * d] };
export const rlForm: Form = { name: 'd(α − β log d)', terms: (d) => [d, d > 0 ? -d * Math.log(d) : 0] };

export interface Fit {
  form: Form;
  alpha: number;
  beta: number;
  /** 95 %, over seeds and then over points drawn with replacement. */
  alphaInterval: [number, number];
  betaInterval: [number, number];
  /** Share of the gains' variance that the form explains. */
  r2: number;
}

export function leastSquares(points: readonly Point[], form: Form, { resamples = 1000, seed = 1 } = {}): Fit {
  const [alpha, beta] = solve(points, form);
  const random = new Random('replications', seed);
  const seeds = [...new Set(points.map((point) => point.seed))];
  const draws = Array.from({ length: resamples }, () => {
    const drawn = seeds.flatMap(() => {
      const chosen = random.pick(seeds);
      const own = points.filter((point) => point.seed === chosen);
      return own.map(() => random.pick(own));
    });
    return solve(drawn, form);
  }).filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
  return {
    form,
    alpha,
    beta,
    alphaInterval: middle(draws.map(([a]) => a)),
    betaInterval: middle(draws.map(([, b]) => b)),
    r2: explained(points, form, alpha, beta),
  };
}

export function fitted({ form, alpha, beta }: Pick<Fit, 'form' | 'alpha' | 'beta'>, d: number): number {
  const [f, g] = form.terms(d);
  return alpha * f + beta * g;
}

/** The normal equations of two unknowns. */
function solve(points: readonly Point[], { terms }: Form): [number, number] {
  let [ff, fg, gg, fy, gy] = [0, 0, 0, 0, 0];
  for (const { d, gain } of points) {
    const [f, g] = terms(d);
    ff += f * f;
    fg += f * g;
    gg += g * g;
    fy += f * gain;
    gy += g * gain;
  }
  const determinant = ff * gg - fg * fg;
  return [(gg * fy - fg * gy) / determinant, (ff * gy - fg * fy) / determinant];
}

function explained(points: readonly Point[], form: Form, alpha: number, beta: number): number {
  const mean = points.reduce((sum, { gain }) => sum + gain, 0) / points.length;
  const left = points.reduce((sum, { d, gain }) => sum + (gain - fitted({ form, alpha, beta }, d)) ** 2, 0);
  return 1 - left / points.reduce((sum, { gain }) => sum + (gain - mean) ** 2, 0);
}

function middle(values: readonly number[]): [number, number] {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number) => sorted[Math.round(share * (sorted.length - 1))] ?? Number.NaN;
  return [at(0.025), at(0.975)];
}
