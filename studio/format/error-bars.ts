/** How far a figure may be off by chance. */

/** Wilson's 95 % score interval (1927) of a share that was seen in n cases. */
export function wilson(share: number, n: number): [low: number, high: number] {
  const z2 = 1.959964 ** 2;
  const centre = (n * share + z2 / 2) / (n + z2);
  const half = Math.sqrt(z2 * (n * share * (1 - share) + z2 / 4)) / (n + z2);
  return [Math.max(0, centre - half), Math.min(1, centre + half)];
}

/** Standard error: the sample deviation over √n. */
export function meanAndError(values: readonly number[]): { mean: number; error: number } {
  const n = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / n;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, error: n < 2 ? 0 : Math.sqrt(squares / (n - 1) / n) };
}
