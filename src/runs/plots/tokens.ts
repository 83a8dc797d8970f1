/**
 * Colours of plots and pages. Four have a fixed meaning: training is blue, held-out orange, gold (a verifier, known
 * answers) green, proxy (a reward model) purple. Other names get other colours.
 */
export const colors = {
  training: '#2563eb',
  heldOut: '#ea580c',
  gold: '#16a34a',
  proxy: '#9333ea',
  /** A single series. */
  plain: '#0e7490',
  ink: '#0f172a',
  label: '#334155',
  muted: '#475569',
  axis: '#94a3b8',
  grid: '#e2e8f0',
  head: '#f1f5f9',
  page: '#f8fafc',
  note: '#eff6ff',
} as const;

/** Colours of names without a fixed meaning: methods, sources, sides of a pair. */
export const categories: readonly string[] = [
  colors.plain,
  '#dc2626',
  '#ca8a04',
  '#64748b',
  '#db2777',
  '#4d7c0f',
  '#0f766e',
  '#7c2d12',
  '#6d28d9',
  '#365314',
];

const meanings: [RegExp, string][] = [
  [/\b(gold|verifier)\b/, colors.gold],
  [/\b(proxy|reward[-_ ]model)\b/, colors.proxy],
  [/^train(ing)?\b/, colors.training],
  [/^(eval(uation)?|held[-_ ]out|validation|test)\b/, colors.heldOut],
];

/**
 * The colour of each name, in order: the fixed colour for the first name with that meaning, otherwise the next free
 * one.
 */
export function colorsOf(names: readonly string[]): string[] {
  const taken = new Set<string>();
  let used = 0;
  return names.map((name) => {
    const fixed = meanings.find(([pattern]) => pattern.test(name))?.[1];
    if (fixed === undefined || taken.has(fixed)) return categories[used++ % categories.length] as string;
    taken.add(fixed);
    return fixed;
  });
}
