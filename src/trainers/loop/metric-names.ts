/** Metrics are logged with the prefix of their kind, `train/` or `eval/`, and handed to programs without it. */

/** `loss` becomes `train/loss`; a name with a prefix keeps it. */
export const prefixed = (prefix: string, values: Record<string, number>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name.includes('/') ? name : prefix + name, value]));

/** The metrics with this prefix, without it. */
export function under(prefix: string, metrics: Record<string, number>): Record<string, number> {
  const own = Object.entries(metrics).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(own.map(([name, value]) => [name.slice(prefix.length), value]));
}
