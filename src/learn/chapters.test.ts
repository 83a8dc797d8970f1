/** The pages of docs/learn: every link leads somewhere, every named declaration is found, every formula can be shown. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import temml from 'temml';
import { describe, expect, it } from 'vitest';
import { chapters, sourcesIn, storedReference } from './book.ts';
import { unknownCommands } from './latex-text.ts';
import { type Block, parseMarkdown, parseSpans } from './markdown.ts';
import { chapterPage } from './page.ts';
import { blockLines } from './terminal-text.ts';

const folder = 'docs/learn';
const pages = readdirSync(folder).filter((name) => name.endsWith('.md'));
const all = chapters();

const inner = (blocks: readonly Block[]): Block[] =>
  blocks.flatMap((block) => (block.kind === 'folded' ? [block, ...inner(block.blocks)] : [block]));
const textsOf = (block: Block): string[] => {
  if (block.kind === 'list') return block.items;
  if (block.kind === 'table') return block.rows.flat();
  if (block.kind === 'folded') return [block.summary];
  return 'text' in block && block.kind !== 'code' ? [block.text] : [];
};

describe('the chapters', () => {
  it('are ten, in order', () => expect(all.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));

  it.each(pages)('%s: every link leads to a file', (name) => {
    const text = readFileSync(join(folder, name), 'utf8');
    const targets = [...text.matchAll(/\]\(([^)#]+)\)/g)].map((match) => match[1] as string);
    const local = targets.filter((target) => !/^https?:/.test(target));
    expect(local.filter((target) => !existsSync(join(dirname(join(folder, name)), target)))).toEqual([]);
  });

  it.each(all.map((chapter) => [chapter.path, chapter] as const))('%s: has its parts', (_, { blocks, path }) => {
    const headings = blocks.flatMap((block) => (block.kind === 'heading' && block.level === 2 ? [block.text] : []));
    expect(headings).toEqual([
      ...['The equation', 'The code', 'The experiment', 'What the papers found', 'Questions', 'Further reading'],
    ]);
    expect(blocks.filter(({ kind }) => kind === 'image')).toHaveLength(1);
    expect(blocks.filter(({ kind }) => kind === 'folded').length).toBeGreaterThanOrEqual(2);
    const sources = blocks.flatMap((block) => (block.kind === 'list' ? sourcesIn(path, block.items) : []));
    expect(sources.length).toBeGreaterThanOrEqual(2);
    for (const { text } of sources) expect(text.split('\n').length).toBeLessThan(80);
  });

  it.each(all.map((chapter) => [chapter.path, chapter] as const))('%s: formulas can be shown', (_, { blocks }) => {
    const every = inner(blocks);
    const formulas = [
      ...every.flatMap((block) => (block.kind === 'math' ? [block.latex] : [])),
      ...every
        .flatMap(textsOf)
        .flatMap((text) => parseSpans(text).flatMap((span) => (span.kind === 'math' ? [span.latex] : []))),
    ];
    expect(formulas.length).toBeGreaterThan(2);
    expect(formulas.flatMap(unknownCommands)).toEqual([]);
    for (const latex of formulas) expect(temml.renderToString(latex, { throwOnError: true })).toContain('<math');
    expect(every.flatMap((block) => blockLines(block, 100)).join('\n')).not.toMatch(/\\[a-z]|\$\$/);
  });

  it('each has a stored curve over three seeds, whose findings held', () => {
    for (const { number, experiment } of all) {
      expect(experiment.seconds, `chapter ${number}`).toBeLessThan(180);
      const reference = storedReference(number);
      expect(reference?.seeds, `chapter ${number}`).toHaveLength(3);
      for (const { claim, held } of reference?.findings ?? []) expect(held, claim).toBeGreaterThanOrEqual(2);
    }
  });

  it('a page is whole: mathematics, code and the stored picture', () => {
    const html = chapterPage(all[5] as (typeof all)[number], null);
    expect(html).toContain('<math');
    expect(html).toContain('export function klTerms');
    expect(html).toContain('data:image/png;base64,');
    expect(html).toContain('<details><summary>');
    expect(html).not.toMatch(/<script|https?:\/\/[^"]*\.js/);
  });
});

describe('markdown', () => {
  it('tells blocks apart', () => {
    const kinds = parseMarkdown(
      '# A\n\ntext\nmore\n\n- one\n  two\n- three\n\n$$\nx\n$$\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```ts\ncode\n```\n',
    );
    expect(kinds).toEqual([
      { kind: 'heading', level: 1, text: 'A' },
      { kind: 'paragraph', text: 'text more' },
      { kind: 'list', items: ['one two', 'three'], ordered: false },
      { kind: 'math', latex: 'x' },
      {
        kind: 'table',
        rows: [
          ['a', 'b'],
          ['1', '2'],
        ],
      },
      { kind: 'code', language: 'ts', text: 'code' },
    ]);
  });

  it('folds answers', () => {
    const [block] = parseMarkdown('<details><summary>Why?</summary>\n\nBecause.\n\n</details>');
    expect(block).toEqual({ kind: 'folded', summary: 'Why?', blocks: [{ kind: 'paragraph', text: 'Because.' }] });
  });
});
