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

/** The known name closest to a mistyped one, or undefined when nothing is near enough to suggest. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(name.length / 2)) + 1;
  for (const candidate of known) {
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

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next[j] = Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, substitution);
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
