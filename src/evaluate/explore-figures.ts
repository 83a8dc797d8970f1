/** The numbers of every example, from which an exploration's report is computed. */
import type { Aspect, Text } from './explore-aspects.ts';
import type { Exploration } from './explore-report.ts';

const openingWords = 3;

/** The numbers of every example, by part. */
export class Collected {
  readonly parts = new Map<string, Text[]>();
  readonly turns: number[] = [];
  readonly steps: number[] = [];
  readonly labels = new Map<string, number>();
  readonly sources = new Map<string, number>();
  readonly samples: Exploration['samples'] = [];
  readonly openings = new Map<string, Map<string, number>>();

  differences(): number[] {
    const [chosen = [], rejected = []] = [this.parts.get('chosen'), this.parts.get('rejected')];
    return chosen.map(({ characters }, index) => characters - (rejected[index] as Text).characters);
  }

  labelBalance(): Record<string, { count: number; share: number }> {
    const all = [...this.labels.values()].reduce((sum, count) => sum + count, 0);
    const sorted = [...this.labels].sort(([, a], [, b]) => b - a);
    return Object.fromEntries(sorted.map(([label, count]) => [label, { count, share: count / all }]));
  }

  add(aspect: Aspect, source: string | undefined): void {
    this.turns.push(aspect.turns);
    if (aspect.steps !== undefined) this.steps.push(aspect.steps);
    for (const label of aspect.labels ?? []) this.labels.set(label, (this.labels.get(label) ?? 0) + 1);
    if (source !== undefined) this.sources.set(source, (this.sources.get(source) ?? 0) + 1);
    for (const [name, text] of Object.entries(aspect.parts)) {
      push(this.parts, name, { characters: text.length, words: countWords(text) });
      if (name === 'prompt') continue;
      const counts = this.openings.get(name) ?? new Map<string, number>();
      this.openings.set(name, counts);
      const opening = openingOf(text);
      if (opening !== '') counts.set(opening, (counts.get(opening) ?? 0) + 1);
    }
  }
}

function openingOf(text: string): string {
  return text
    .slice(0, 120)
    .trim()
    .split(/\s+/)
    .slice(0, openingWords)
    .join(' ')
    .toLowerCase()
    .replace(/[.,!?;:]+$/, '');
}

function countWords(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}

export function push<K, V>(groups: Map<K, V[]>, key: K, value: V): void {
  const group = groups.get(key);
  if (group === undefined) groups.set(key, [value]);
  else group.push(value);
}
