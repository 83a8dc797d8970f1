/** Examples of a dataset, read once and kept, to be searched and filtered; a very large set only in its first part. */
import { existsSync, statSync } from 'node:fs';
import { type Example, openDataset, type Shape } from '../../data/index.ts';
import { datasetHub } from '../../hub/hub.ts';
import type { DataExample, ExamplesAnswer, Rating } from '../api/data.ts';
import { pairHash } from './ratings.ts';

const most = { examples: 50_000, characters: 64 << 20 };

export interface Examples {
  dataset: string;
  shape: Shape;
  rows: DataExample[];
}

export class ExampleCache {
  readonly #kept = new Map<string, { signature: string; examples: Promise<Examples> }>();

  /** `path`: where it lies, or its hub name. */
  of(path: string, split: string | undefined): Promise<Examples> {
    const key = JSON.stringify([path, split]);
    const signature = existsSync(path) ? `${statSync(path).size} ${statSync(path).mtimeMs}` : '';
    const known = this.#kept.get(key);
    if (known?.signature === signature) return known.examples;
    const examples = read(path, split);
    this.#kept.clear();
    this.#kept.set(key, { signature, examples });
    examples.catch(() => this.#kept.delete(key));
    return examples;
  }
}

async function read(path: string, split: string | undefined): Promise<Examples> {
  const dataset = await openDataset(path, {
    onBadRow: 'skip',
    hub: datasetHub(),
    ...(split === undefined ? {} : { split }),
  });
  const shape = await dataset.shape();
  const rows: DataExample[] = [];
  let characters = 0;
  for await (const example of dataset) {
    const row = exampleOf(rows.length, example);
    characters += row.responses.reduce((sum, { text }) => sum + text.length, 200);
    rows.push(row);
    if (rows.length >= most.examples || characters > most.characters) break;
  }
  return { dataset: dataset.name, shape, rows };
}

function exampleOf(index: number, example: Example): DataExample {
  const source = example.source === undefined ? {} : { source: example.source };
  const row = (prompt: DataExample['prompt'], responses: DataExample['responses']) => ({
    index,
    prompt,
    responses,
    ...source,
  });
  const plain = (messages: readonly { role: string; content: string }[]) =>
    messages.map(({ role, content }) => ({ role, content }) as DataExample['prompt'][number]);
  if ('chosen' in example) {
    const { chosen, rejected } = example;
    const prompt = plain(example.prompt);
    const responses = [
      { name: 'chosen', text: chosen },
      { name: 'rejected', text: rejected },
    ];
    return { ...row(prompt, responses), pair: pairHash(prompt, chosen, rejected) };
  }
  if ('completion' in example)
    return row(plain(example.prompt), [
      { name: 'completion', text: example.completion, label: example.label ? 'wanted' : 'unwanted' },
    ]);
  if ('messages' in example) return row(plain(example.messages), []);
  if ('text' in example) return row([], [{ name: 'text', text: example.text }]);
  if ('correct' in example)
    return row(plain(example.prompt), [
      { name: 'solution', text: example.solution, label: example.correct ? 'right' : 'wrong' },
    ]);
  if ('steps' in example)
    return row(
      plain(example.prompt),
      example.steps.map(({ text, label }, i) => ({
        name: `step ${i + 1}`,
        text,
        ...(label === null ? {} : { label: String(label) }),
      })),
    );
  const { prompt, answer, solution } = example;
  return row(plain(prompt), [
    ...(solution === undefined ? [] : [{ name: 'solution', text: solution }]),
    ...(answer === undefined ? [] : [{ name: 'answer', text: answer }]),
  ]);
}

export interface ExampleQuery {
  q?: string;
  filter?: string;
  offset: number;
  limit: number;
}

export function queryExamples(
  examples: Examples,
  ratings: ReadonlyMap<number, Rating>,
  query: ExampleQuery,
): ExamplesAnswer {
  const words = (query.q ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  const found = examples.rows.filter((row) => fits(row, query.filter, ratings) && has(row, words));
  const rows = found.slice(query.offset, query.offset + query.limit).map((row) => {
    const rating = ratings.get(row.index);
    return rating === undefined ? row : { ...row, rating };
  });
  const { dataset, shape } = examples;
  return { dataset, shape, total: found.length, read: examples.rows.length, rows };
}

function fits(
  { index, responses }: DataExample,
  filter: string | undefined,
  ratings: ReadonlyMap<number, Rating>,
): boolean {
  const [first, second] = responses;
  if (filter === 'rated') return ratings.has(index);
  if (filter === 'unrated') return !ratings.has(index);
  if (filter === 'longer') return (first?.text.length ?? 0) > (second?.text.length ?? 0);
  if (filter === 'shorter') return (first?.text.length ?? 0) < (second?.text.length ?? 0);
  return true;
}

function has({ prompt, responses }: DataExample, words: readonly string[]): boolean {
  if (words.length === 0) return true;
  const text = [...prompt.map(({ content }) => content), ...responses.map((each) => each.text)]
    .join('\n')
    .toLowerCase();
  return words.every((word) => text.includes(word));
}
