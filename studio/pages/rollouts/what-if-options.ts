/** Options of a what-if as they are typed. */

/**
 * Options of the loop over updates act on no single stored step: passes, their early stop, the course of the KL weight.
 * Entropies are not stored, and rewards are stored with the overlong penalty already in them.
 */
const withoutEffect = new Set(['ppoEpochs', 'targetKl', 'adaptiveKl', 'entropyCoef', 'overlongRamp']);

/** Options that can change what a stored step gives. */
export const actingOptions = (options: Readonly<Record<string, unknown>>) =>
  Object.entries(options).filter(([name]) => !withoutEffect.has(name));

/** What was typed, as the type that the option has now; what is empty stays as it is. */
export function changedOptions(
  typed: Readonly<Record<string, string>>,
  current: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(typed).flatMap(([name, text]) => {
      const trimmed = text.trim();
      return trimmed === '' ? [] : [[name, read(trimmed, current[name])]];
    }),
  );
}

/** Text that is no number is sent as it is: the server says what is wrong with it. */
function read(text: string, current: unknown): unknown {
  if (text === 'true' || text === 'false') return text === 'true';
  const value = Number(text.replace('−', '-'));
  return typeof current === 'string' || Number.isNaN(value) ? text : value;
}

export function written(value: unknown): string {
  if (value === undefined || value === null) return 'not set';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** clipLow → --clip-low, as it is typed. */
export const flagOf = (name: string) => `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
