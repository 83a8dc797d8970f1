import { spelled } from './spelling.ts';

/**
 * The base of attune's own errors; they name options as their reader spells them. Apart from `UserError`, they are failures of
 * the program or the machine: a command ends with exit code 1.
 */
export class AttuneError extends Error {
  override name = 'AttuneError';
  constructor(message?: string, options?: ErrorOptions) {
    super(message === undefined ? undefined : spelled(message), options);
  }
}

/** A mistake that the user can fix: printed without a stack trace, and a command ends with exit code 2. */
export class UserError extends AttuneError {
  override name = 'UserError';
}

/**
 * The known name closest to a mistyped one, or undefined where none is close enough: up to a third of the letters may differ.
 * A file name's extension is left out of the comparison.
 */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  const ending = /(?<=.)\.[a-z0-9.]+$/i;
  const stem = name.toLowerCase().replace(ending, '');
  const allowed = Math.max(1, Math.floor(stem.length / 3));
  let best: string | undefined;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    if (editDistance(stem, candidate.toLowerCase().replace(ending, '')) > allowed) continue;
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** ` Did you mean "x"?`, with the leading space, or an empty string. */
export function suggestion(name: string, known: Iterable<string>): string {
  const near = nearest(name, known);
  return near === undefined ? '' : ` Did you mean "${near}"?`;
}

/** Refuses names that a call does not know: a misspelt option would be ignored from JavaScript, where no type checks it. */
export function checkNames(call: string, given: object, known: readonly string[]): void {
  const unknown = Object.keys(given).filter((name) => !known.includes(name));
  if (unknown.length === 0) return;
  const each = unknown.map((name) => `"${name}".${suggestion(name, known)}`).join(' ');
  throw new UserError(`${call} does not know ${each} It takes ${known.join(', ')}.`);
}

/** How many letters to change, add, drop or swap with a neighbour (Damerau–Levenshtein distance, optimal string alignment). */
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const transposition = swapped ? (before[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY;
      next[j] = Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, substitution, transposition);
    }
    before = row;
    row = next;
  }
  return row[b.length] ?? 0;
}
