/** How many different prompts a corpus has: easy tasks have few, and their test part fewer still. */
import type { CorpusKind, corpusRows } from './corpus.ts';

type Row = ReturnType<typeof corpusRows> extends Generator<infer R> ? R : never;

/** Counts the different prompts of a corpus and warns where most are repeats. */
export class DistinctPrompts {
  rows = 0;
  readonly #seen = new Set<string>();
  readonly #perPrompt: number;

  /** `perPrompt`: rows that are meant to share one prompt. */
  constructor(kind: CorpusKind, perPrompt = 1) {
    this.#perPrompt = kind === 'graded' ? perPrompt : 1;
  }

  add(row: Row): void {
    this.rows++;
    this.#seen.add('prompt' in row ? row.prompt : (row.messages.find(({ role }) => role === 'user')?.content ?? ''));
  }

  get distinct(): number {
    return this.#seen.size;
  }

  /** A warning where more than half of the prompts are repeats. */
  warning(): string | undefined {
    const wanted = Math.ceil(this.rows / this.#perPrompt);
    if (this.distinct * 2 >= wanted) return undefined;
    const count = (value: number) => value.toLocaleString('en-US');
    return (
      `only ${count(this.distinct)} of ${count(wanted)} prompts are different: these tasks have no more at this difficulty. ` +
      'Ask for fewer rows, harder tasks or more of them.'
    );
  }
}
