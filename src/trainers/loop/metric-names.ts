/** Metrics are logged with a prefix, `train/` or `eval/`, and passed to programs without it. */

/** `loss` becomes `train/loss`. A name that has a prefix keeps it. */
export const prefixed = (prefix: string, values: Record<string, number>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name.includes('/') ? name : prefix + name, value]));

/** The metrics with this prefix, with the prefix removed. */
export function under(prefix: string, metrics: Record<string, number>): Record<string, number> {
  const own = Object.entries(metrics).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(own.map(([name, value]) => [name.slice(prefix.length), value]));
}
