/**
 * Colours of pictures and pages. Four of them mean one thing wherever they are seen: training blue, held-out orange, gold
 * (a verifier, known answers) green, proxy (a reward model) purple. Names without such a meaning get other colours.
 */
export const colors = {
  training: '#2563eb',
  heldOut: '#ea580c',
  gold: '#16a34a',
  proxy: '#9333ea',
  /** One series that needs no telling apart. */
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

/** Colours of names that mean nothing by themselves: methods, sources, sides of a pair. */
const categories = [
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

/** The colour of each name, in order: its meaning's where it has one, otherwise the next that is free. */
export function colorsOf(names: readonly string[]): string[] {
  let used = 0;
  return names.map(
    (name) =>
      meanings.find(([pattern]) => pattern.test(name))?.[1] ?? (categories[used++ % categories.length] as string),
  );
}
