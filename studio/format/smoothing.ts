/**
 * Smoothing of a curve: an exponential moving average that corrects for its start (Kingma and Ba 2015, section 3) and
 * for uneven distances on the x axis, so that the amount means the same at 100 and at 100,000 points.
 *
 * `amount` in [0, 1): the share of the visible width that the average looks back over, squared for a finer lower end.
 */
export function smoothed(
  x: readonly number[],
  y: readonly (number | null | undefined)[],
  amount: number,
): (number | null)[] {
  if (amount <= 0) return y.map((value) => value ?? null);
  const width = (x.at(-1) ?? 0) - (x[0] ?? 0) || 1;
  const reach = width * amount * amount * 0.25;
  let [sum, weight] = [0, 0];
  let before = x[0] ?? 0;
  return y.map((value, i) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return null;
    const here = x[i] as number;
    const kept = Math.exp(-(here - before) / reach);
    before = here;
    sum = sum * kept + value;
    weight = weight * kept + 1;
    return sum / weight;
  });
}
