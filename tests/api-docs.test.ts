/** docs/api.md is what `npm run docs` makes of the sources, and every export of the package has a sentence. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { apiPage, entries, page, sentence } from '../scripts/api-docs.ts';

const all = entries();

it('has a sentence for every export of every entry', () => {
  expect(all.map(({ specifier }) => specifier)).toContain('attune/algorithms');
  const bare = all.flatMap(({ specifier, exports }) =>
    exports.filter(({ comment }) => sentence(comment) === '').map(({ name }) => `${specifier}: ${name}`),
  );
  expect(bare).toEqual([]);
});

it('finds what the entries export when they run', async () => {
  const names = (specifier: string) =>
    all
      .find((entry) => entry.specifier === specifier)
      ?.exports.filter(({ kind }) => kind !== 'interface' && kind !== 'type')
      .map(({ name }) => name)
      .sort();
  for (const { specifier, file } of all)
    expect(names(specifier), specifier).toEqual(Object.keys(await import(file)).sort());
});

it('names the members of types and classes', () => {
  const members = (name: string) => all.flatMap(({ exports }) => exports).find((each) => each.name === name)?.members;
  expect(members('RewardItem')).toEqual(['prompt', 'response', 'steps?', 'example?', 'fields?']);
  expect(members('LanguageModel')).toEqual(expect.arrayContaining(['static open', 'generate', 'stream', 'dispose']));
  expect(members('LanguageModel')).not.toContain('constructor');
});

it('gives types the heads that they have, without their parameters', () => {
  const text = page(all);
  expect(text).toContain('| `Dataset implements AsyncIterable<ExampleOf[S]>` |');
  expect(text).toContain('| `GgufOptions extends MergeSource` |');
  expect(text).toContain('| `BuildPreferencesInput` |');
  expect(text).toContain('| `async function* stream(');
});

it('is up to date in docs/api.md: npm run docs', () => {
  expect(readFileSync(apiPage, 'utf8')).toBe(page(all));
});

it('cuts a comment after its first sentence', () => {
  expect(sentence('DPO (Rafailov et al. 2023). The loss is convex.')).toBe('DPO (Rafailov et al. 2023).');
  expect(sentence('By Liu et al. in 2025. More.')).toBe('By Liu et al. in 2025.');
  expect(sentence('`a. b`: a path. More.')).toBe('`a. b`: a path.');
  expect(sentence('Makes a thing:\n\n    code')).toBe('Makes a thing.');
});
