/**
 * Logistic regression of being right on one variable, by Newton's method: P(right) = σ(a + b·x). At x = 0 it gives the
 * accuracy left when the variable, such as the difference in length, explains nothing.
 */
export interface LogisticFit {
  intercept: number;
  slope: number;
  /** Standard errors, from the inverse of the information matrix. */
  interceptError: number;
  slopeError: number;
}

/** undefined if no finite fit exists: `x` is constant, or it separates right from wrong completely. */
export function fitLogistic(x: readonly number[], right: readonly number[]): LogisticFit | undefined {
  const scale = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / Math.max(1, x.length));
  if (scale === 0 || x.every((value) => value === x[0])) return undefined;
  // x is scaled so that Newton's steps have similar sizes; the slope is scaled back.
  const z = x.map((value) => value / scale);
  let [a, b] = [0, 0];
  for (let step = 0; step < 100; step++) {
    const { gradient, information } = derivatives(z, right, a, b);
    const [aa, ab, bb] = information;
    const determinant = aa * bb - ab * ab;
    if (!(determinant > 1e-10 * z.length)) return undefined;
    const [da, db] = [
      (bb * gradient[0] - ab * gradient[1]) / determinant,
      (aa * gradient[1] - ab * gradient[0]) / determinant,
    ];
    a += da;
    b += db;
    if (Math.abs(a) + Math.abs(b) > 50) return undefined;
    if (Math.abs(da) + Math.abs(db) > 1e-10) continue;
    return {
      intercept: a,
      slope: b / scale,
      interceptError: Math.sqrt(bb / determinant),
      slopeError: Math.sqrt(aa / determinant) / scale,
    };
  }
  return undefined;
}

function derivatives(x: readonly number[], right: readonly number[], a: number, b: number) {
  const gradient: [number, number] = [0, 0];
  const information: [number, number, number] = [0, 0, 0];
  for (const [i, value] of x.entries()) {
    const chance = sigmoid(a + b * value);
    const residual = (right[i] as number) - chance;
    const weight = chance * (1 - chance);
    gradient[0] += residual;
    gradient[1] += residual * value;
    information[0] += weight;
    information[1] += weight * value;
    information[2] += weight * value * value;
  }
  return { gradient, information };
}

export const sigmoid = (value: number) => 1 / (1 + Math.exp(-value));
