/** A chapter for a terminal: wrapped text, formulas in plain characters, tables with columns. */
import { latexText } from './latex-text.ts';
import { type Block, parseSpans } from './markdown.ts';

/** A line of markdown without its marks. */
export function plainText(text: string): string {
  return parseSpans(text)
    .map((span) => {
      if (span.kind === 'math') return latexText(span.latex);
      if (span.kind === 'link' && /^https?:/.test(span.target)) return `${span.text} (${span.target})`;
      return span.text;
    })
    .join('');
}

/** One block as lines. Pictures and folded answers are the caller's. */
export function blockLines(block: Block, width: number): string[] {
  switch (block.kind) {
    case 'heading': {
      const title = plainText(block.text);
      return [title, (block.level <= 1 ? '═' : '─').repeat(title.length)];
    }
    case 'paragraph':
      return wrapped(plainText(block.text), width);
    case 'quote':
      return wrapped(plainText(block.text), width - 2).map((line) => `│ ${line}`);
    case 'list':
      return block.items.flatMap((item, i) => {
        const mark = block.ordered ? `${i + 1}. ` : '• ';
        return wrapped(plainText(item), width - mark.length).map(
          (line, at) => `${at === 0 ? mark : ' '.repeat(mark.length)}${line}`,
        );
      });
    case 'math':
      return block.latex
        .split('\\\\')
        .map((line) => `    ${latexText(line)}`)
        .filter((line) => line.trim() !== '');
    case 'code':
      return block.text.split('\n').map((line) => `    ${line}`);
    case 'table':
      return tableLines(block.rows.map((row) => row.map(plainText)));
    default:
      return [];
  }
}

function tableLines(rows: readonly string[][]): string[] {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, i) => Math.max(...rows.map((row) => (row[i] ?? '').length)));
  const line = (row: readonly string[]) => widths.map((width, i) => (row[i] ?? '').padEnd(width)).join('  ');
  const [head, ...body] = rows;
  return [line(head ?? []), widths.map((width) => '─'.repeat(width)).join('  '), ...body.map(line)];
}

/** Breaks text at spaces. */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/).filter(Boolean)) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return line === '' ? lines : [...lines, line];
}
