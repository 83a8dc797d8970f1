/** Summary statistics of a list of numbers. */
export interface Summary {
  count: number;
  mean: number;
  std: number;
  min: number;
  median: number;
  p90: number;
  p99: number;
  max: number;
}

export function summarise(values: readonly number[]): Summary {
  const sorted = Float64Array.from(values).sort();
  const count = sorted.length;
  const mean = sorted.reduce((sum, value) => sum + value, 0) / Math.max(count, 1);
  const squares = sorted.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const at = (q: number) => quantile(sorted, q);
  const std = count > 1 ? Math.sqrt(squares / (count - 1)) : 0;
  return { count, mean, std, min: at(0), median: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}

/** A quantile, by linear interpolation between neighbours as NumPy does. */
export function quantile(sorted: ArrayLike<number>, q: number): number {
  const place = q * (sorted.length - 1);
  const below = sorted[Math.floor(place)] ?? 0;
  return below + ((sorted[Math.ceil(place)] ?? 0) - below) * (place - Math.floor(place));
}

export function share<T>(values: readonly T[], test: (value: T) => boolean): number {
  if (values.length === 0) return 0;
  return values.reduce((sum, value) => sum + (test(value) ? 1 : 0), 0) / values.length;
}
