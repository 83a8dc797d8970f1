/** A chapter as one HTML page: the mathematics as MathML, the code, the reader's curves beside the stored ones. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import temml from 'temml';
import { escapeHtml } from '../runs/plots/report.ts';
import { packageRoot } from '../tensor/engine/native.ts';
import { type Chapter, sourcesIn } from './book.ts';
import type { Finding } from './experiments/experiment.ts';
import { type Block, parseSpans } from './markdown.ts';

export interface PageResult {
  /** The curves as SVG, own and stored. */
  pictures: { own: string; stored: string | null }[];
  findings: readonly Finding[];
  sentence: string;
}

/** The whole page. Without a result it shows the stored picture only. */
export function chapterPage(chapter: Chapter, result: PageResult | null): string {
  const body = chapter.blocks.map((block) => blockHtml(block, chapter, result)).join('\n');
  const title = `${chapter.number}. ${escapeHtml(chapter.title)}`;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title><style>${style}</style></head>
<body><main>
${body}
</main></body></html>
`;
}

function blockHtml(block: Block, chapter: Chapter, result: PageResult | null): string {
  switch (block.kind) {
    case 'heading':
      return `<h${block.level}>${spansHtml(block.text)}</h${block.level}>`;
    case 'paragraph':
      return `<p>${spansHtml(block.text)}</p>`;
    case 'quote':
      return `<blockquote>${spansHtml(block.text)}</blockquote>`;
    case 'list': {
      const tag = block.ordered ? 'ol' : 'ul';
      const items = block.items.map((item) => {
        const code = sourcesIn(chapter.path, [item]);
        return `<li>${spansHtml(item)}${code.map(({ path, firstLine, text }) => codeHtml(`${path}:${firstLine}`, text)).join('')}</li>`;
      });
      return `<${tag}>${items.join('')}</${tag}>`;
    }
    case 'math':
      return temml.renderToString(block.latex, { displayMode: true });
    case 'code':
      return codeHtml('', block.text);
    case 'table': {
      const [head, ...rows] = block.rows;
      const cells = (row: readonly string[], tag: string) =>
        `<tr>${row.map((cell) => `<${tag}>${spansHtml(cell)}</${tag}>`).join('')}</tr>`;
      return `<div class="wide"><table>${cells(head ?? [], 'th')}${rows.map((row) => cells(row, 'td')).join('')}</table></div>`;
    }
    case 'folded':
      return `<details><summary>${spansHtml(block.summary)}</summary>${block.blocks.map((inner) => blockHtml(inner, chapter, result)).join('')}</details>`;
    case 'image':
      return result === null ? storedPicture(block.path, block.alt) : resultHtml(result);
  }
}

function resultHtml({ pictures, findings, sentence }: PageResult): string {
  const pair = pictures.map(
    ({ own, stored }) =>
      `<div class="pair"><figure>${own}<figcaption>your run</figcaption></figure>${
        stored === null ? '' : `<figure>${stored}<figcaption>stored</figcaption></figure>`
      }</div>`,
  );
  const items = findings.map(
    ({ claim, holds, numbers }) =>
      `<li class="${holds ? 'holds' : 'fails'}">${spansHtml(claim)}: ${escapeHtml(numbers)}</li>`,
  );
  return `${pair.join('')}<p><strong>${escapeHtml(sentence)}</strong></p><ul class="findings">${items.join('')}</ul>`;
}

function storedPicture(path: string, alt: string): string {
  const bytes = readFileSync(join(packageRoot, 'docs', 'learn', path));
  return `<figure><img alt="${escapeHtml(alt)}" src="data:image/png;base64,${bytes.toString('base64')}"></figure>`;
}

const codeHtml = (where: string, text: string): string =>
  `${where === '' ? '' : `<div class="where">${escapeHtml(where)}</div>`}<pre><code>${escapeHtml(text)}</code></pre>`;

function spansHtml(text: string): string {
  return parseSpans(text)
    .map((span) => {
      switch (span.kind) {
        case 'math':
          return temml.renderToString(span.latex);
        case 'code':
          return `<code>${escapeHtml(span.text)}</code>`;
        case 'strong':
          return `<strong>${escapeHtml(span.text)}</strong>`;
        case 'emphasis':
          return `<em>${escapeHtml(span.text)}</em>`;
        case 'link':
          return /^https?:/.test(span.target)
            ? `<a href="${escapeHtml(span.target)}">${escapeHtml(span.text)}</a>`
            : `<code>${escapeHtml(span.text)}</code>`;
        default:
          return escapeHtml(span.text);
      }
    })
    .join('');
}

const style = `
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6575; --line: #d9dee6; --panel: #f5f7fa; --good: #15803d; --bad: #b91c1c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa5b5; --line: #343c4a; --panel: #1b212b; --good: #4ade80; --bad: #f87171; } body { background: #12161d; } }
body { margin: 0; color: var(--ink); font: 16px/1.6 system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .7rem; overflow-x: auto; font-size: 13px; line-height: 1.45; }
code { font-family: ui-monospace, monospace; font-size: .92em; } .where { color: var(--soft); font: 12px ui-monospace, monospace; margin-top: .6rem; }
blockquote { margin: 0; padding-left: .8rem; border-left: 3px solid var(--line); color: var(--soft); }
math[display=block] { margin: 1rem 0; font-size: 1.15em; } .wide { overflow-x: auto; } table { border-collapse: collapse; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: left; }
.pair { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; flex: 1 1 20rem; } figure svg, figure img { max-width: 100%; height: auto; background: white; border-radius: 6px; }
figcaption { color: var(--soft); font-size: 13px; } details { border: 1px solid var(--line); border-radius: 6px; padding: .4rem .8rem; margin: .5rem 0; }
summary { cursor: pointer; } .findings { list-style: none; padding: 0; } .holds::before { content: '✓ '; color: var(--good); } .fails::before { content: '✗ '; color: var(--bad); }
`;
