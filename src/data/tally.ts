/** Counts the rows that were read and, by reason, those that were left out. */
export class Tally {
  rows = 0;
  badRows = 0;
  examples = 0;
  readonly dropped: Record<string, number> = {};
  /** The first few broken rows, described. */
  readonly faults: string[] = [];

  drop(reason: string): void {
    this.dropped[reason] = (this.dropped[reason] ?? 0) + 1;
  }

  bad(message: string): void {
    this.badRows++;
    if (this.faults.length < 5) this.faults.push(message);
  }

  get totalDropped(): number {
    return Object.values(this.dropped).reduce((sum, count) => sum + count, 0);
  }

  /** Rows left out before the set was split are counted once, on the training side. */
  keepExamplesOnly(): void {
    this.badRows = 0;
    for (const reason of Object.keys(this.dropped)) delete this.dropped[reason];
  }

  /** One line for people: `980 of 1,000 rows used; 2 broken; 18 left out (ties 12, too long 6)`. */
  summary(): string {
    const parts = [`${this.examples.toLocaleString('en-US')} examples from ${this.rows.toLocaleString('en-US')} rows`];
    if (this.badRows > 0) parts.push(`${this.badRows} broken row${this.badRows === 1 ? '' : 's'} skipped`);
    const reasons = Object.entries(this.dropped).map(([reason, count]) => `${reason} ${count}`);
    if (reasons.length > 0) parts.push(`${this.totalDropped} left out (${reasons.join(', ')})`);
    return parts.join('; ');
  }

  toJSON(): { rows: number; badRows: number; examples: number; dropped: Record<string, number> } {
    return { rows: this.rows, badRows: this.badRows, examples: this.examples, dropped: { ...this.dropped } };
  }
}

/** Rows left out, except those that were asked to be: `ties 1, too long 2; 3 broken rows skipped`. */
export function leftOutText({ badRows, dropped }: Pick<Tally, 'badRows' | 'dropped'>): string | undefined {
  const reasons = Object.entries(dropped).flatMap(([reason, count]) =>
    reason === 'not sampled' ? [] : [`${reason} ${count.toLocaleString('en-US')}`],
  );
  const parts = reasons.length === 0 ? [] : [reasons.join(', ')];
  if (badRows > 0) parts.push(`${badRows.toLocaleString('en-US')} broken row${badRows === 1 ? '' : 's'} skipped`);
  return parts.length === 0 ? undefined : parts.join('; ');
}
