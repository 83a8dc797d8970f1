/**
 * One family of errors. A `UserError` is a mistake that the person at the keyboard can mend: it is printed without a
 * stack trace and ends a command with exit code 2. Everything else is a failure of the program or machine: exit code 1.
 */
export class AttuneError extends Error {
  override name = 'AttuneError';
}

export class UserError extends AttuneError {
  override name = 'UserError';
}

/**
 * The known name closest to a mistyped one, or undefined when nothing is near enough to be meant: a third of the letters may
 * differ, and of a file's name its ending does not count as a likeness.
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

/** `did you mean "x"?` with a leading space, or an empty string. */
export function suggestion(name: string, known: Iterable<string>): string {
  const near = nearest(name, known);
  return near === undefined ? '' : ` Did you mean "${near}"?`;
}

/** Letters to change, add, leave out, or swap with their neighbour (Damerau's distance, restricted to one edit a place). */
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
