/**
 * The markdown of the chapters as blocks and spans: headings, paragraphs, lists, tables, code, mathematics, folded answers,
 * pictures. Only what docs/learn uses; anything else is a paragraph.
 */

export type Block =
  | { kind: 'heading'; level: number; text: string }
  | { kind: 'paragraph' | 'quote'; text: string }
  | { kind: 'list'; items: string[]; ordered: boolean }
  | { kind: 'table'; rows: string[][] }
  | { kind: 'code'; language: string; text: string }
  | { kind: 'math'; latex: string }
  | { kind: 'image'; alt: string; path: string }
  | { kind: 'folded'; summary: string; blocks: Block[] };

export type Span =
  | { kind: 'text' | 'code' | 'strong' | 'emphasis'; text: string }
  | { kind: 'math'; latex: string }
  | { kind: 'link'; text: string; target: string };

/** Splits a page into blocks. */
export function parseMarkdown(page: string): Block[] {
  const lines = page.replaceAll('\r\n', '\n').split('\n');
  const blocks: Block[] = [];
  let at = 0;
  const line = () => lines[at] as string;
  const until = (isEnd: (line: string) => boolean): string[] => {
    const taken: string[] = [];
    while (at < lines.length && !isEnd(line())) taken.push(lines[at++] as string);
    return taken;
  };
  while (at < lines.length) {
    const text = line();
    if (text.trim() === '') at++;
    else if (/^#{1,4} /.test(text)) {
      const [, marks, title] = /^(#+) (.*)$/.exec(text) as unknown as [string, string, string];
      blocks.push({ kind: 'heading', level: marks.length, text: title });
      at++;
    } else if (text.startsWith('```')) {
      at++;
      blocks.push({
        kind: 'code',
        language: text.slice(3).trim(),
        text: until((end) => end.startsWith('```')).join('\n'),
      });
      at++;
    } else if (text.trim() === '$$') {
      at++;
      blocks.push({ kind: 'math', latex: until((end) => end.trim() === '$$').join('\n') });
      at++;
    } else if (text.startsWith('<details>')) {
      const [, summary = ''] = /<summary>(.*)<\/summary>/.exec(text) ?? [];
      at++;
      const inner = until((end) => end.startsWith('</details>')).join('\n');
      at++;
      blocks.push({ kind: 'folded', summary, blocks: parseMarkdown(inner) });
    } else if (text.startsWith('|')) {
      const rows = until((end) => !end.startsWith('|')).map(cellsOf);
      blocks.push({ kind: 'table', rows: rows.filter((cells) => !cells.every((cell) => /^:?-+:?$/.test(cell))) });
    } else if (/^(- |\d+\. )/.test(text)) {
      const items: string[] = [];
      for (const part of until((end) => end.trim() === '')) {
        if (/^(- |\d+\. )/.test(part)) items.push(part.replace(/^(- |\d+\. )/, ''));
        else items.push(`${items.pop() ?? ''} ${part.trim()}`);
      }
      blocks.push({ kind: 'list', items, ordered: /^\d/.test(text) });
    } else if (/^!\[.*\]\(.*\)$/.test(text)) {
      const [, alt, path] = /^!\[(.*)\]\((.*)\)$/.exec(text) as unknown as [string, string, string];
      blocks.push({ kind: 'image', alt, path });
      at++;
    } else if (text.startsWith('> ')) {
      const quoted = until((end) => !end.startsWith('>'));
      blocks.push({ kind: 'quote', text: quoted.map((part) => part.replace(/^> ?/, '')).join(' ') });
    } else {
      const first = lines[at++] as string;
      const rest = until((end) => end.trim() === '' || /^(#{1,4} |```|\$\$|<details>|\||- |!\[)/.test(end));
      blocks.push({ kind: 'paragraph', text: [first, ...rest].join(' ') });
    }
  }
  return blocks;
}

const cellsOf = (row: string): string[] =>
  row
    .replace(/^\|/, '')
    .replace(/\|\s*$/, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));

const spanPattern = /`([^`]+)`|\$([^$]+)\$|\*\*([^*]+)\*\*|\*([^*]+)\*|\[((?:[^[\]]|`[^`]*`)+)\]\(([^)]+)\)/g;

/** Splits a line of text into plain parts, code, mathematics, emphasis and links. */
export function parseSpans(text: string): Span[] {
  const spans: Span[] = [];
  let end = 0;
  for (const match of text.matchAll(spanPattern)) {
    if (match.index > end) spans.push({ kind: 'text', text: text.slice(end, match.index) });
    end = match.index + match[0].length;
    const [, code, latex, strong, emphasis, label, target] = match;
    if (code !== undefined) spans.push({ kind: 'code', text: code });
    else if (latex !== undefined) spans.push({ kind: 'math', latex });
    else if (strong !== undefined) spans.push({ kind: 'strong', text: strong });
    else if (emphasis !== undefined) spans.push({ kind: 'emphasis', text: emphasis });
    else spans.push({ kind: 'link', text: (label as string).replaceAll('`', ''), target: target as string });
  }
  if (end < text.length) spans.push({ kind: 'text', text: text.slice(end) });
  return spans;
}
