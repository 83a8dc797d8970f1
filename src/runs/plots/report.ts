/**
 * A report in a single HTML file: headings, tables, charts and samples, with nothing loaded from elsewhere.
 *
 *     const report = new Report('GRPO on chain_sum', 'tiny model, 200 steps');
 *     report.section('Curves').charts(curveCharts(rows));
 *     report.section('Samples').samples([{ prompt, responses: [{ label: 'step 200', text, values: { reward: 1 } }] }]);
 *     writeFileSync('report.html', report.html());
 */
import type { Chart } from './chart.ts';
import { documentsOf, sameSize } from './sheet.ts';
import { colors } from './tokens.ts';

export type Cell = string | number;

type Block = { html: string } | { charts: readonly Chart[] };

export class Report {
  readonly #title: string;
  readonly #subtitle: string;
  readonly #blocks: Block[] = [];

  constructor(title: string, subtitle = '') {
    this.#title = title;
    this.#subtitle = subtitle;
  }

  section(title: string): this {
    return this.#add(`<h2>${escapeHtml(title)}</h2>`);
  }

  paragraph(text: string): this {
    return this.#add(`<p>${escapeHtml(text)}</p>`);
  }

  /** A highlighted note on a metric that is often misread. */
  note(text: string): this {
    return this.#add(`<p class="note">${escapeHtml(text)}</p>`);
  }

  /** The main result at the top: `55 % → 95 %` and a few words of explanation. */
  headline(figure: string, meaning: string): this {
    return this.#add(`<p class="headline"><strong>${escapeHtml(figure)}</strong> ${escapeHtml(meaning)}</p>`);
  }

  charts(charts: readonly Chart[]): this {
    this.#blocks.push({ charts: sameSize(charts) });
    return this;
  }

  table(head: readonly string[], rows: readonly (readonly Cell[])[]): this {
    const cells = (tag: string, row: readonly Cell[]) =>
      row
        .map(
          (cell) =>
            `<${tag}${typeof cell === 'number' ? ' class="number"' : ''}>${escapeHtml(cellText(cell))}</${tag}>`,
        )
        .join('');
    const body = rows.map((row) => `<tr>${cells('td', row)}</tr>`).join('\n');
    return this.#add(
      `<div class="wide"><table><thead><tr>${cells('th', head)}</tr></thead>\n<tbody>${body}</tbody></table></div>`,
    );
  }

  /** A prompt with one or more responses and their numbers. */
  samples(
    samples: readonly {
      prompt: string;
      responses: readonly { label: string; text: string; values?: Record<string, number> }[];
    }[],
  ): this {
    const parts = samples.map(({ prompt, responses }) => {
      const columns = responses.map(({ label, text, values }) => {
        const numbers = Object.entries(values ?? {}).map(
          ([name, value]) => `<span class="tag">${escapeHtml(name)} ${escapeHtml(cellText(value))}</span>`,
        );
        return `<div class="answer"><h4>${escapeHtml(label)} ${numbers.join(' ')}</h4><pre>${escapeHtml(text)}</pre></div>`;
      });
      return `<div class="sample"><pre class="prompt">${escapeHtml(prompt)}</pre><div class="responses">${columns.join('')}</div></div>`;
    });
    return this.#add(parts.join('\n'));
  }

  html(): string {
    const body = this.#blocks.map((block) => ('html' in block ? block.html : chartsHtml(block.charts)));
    return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(this.#title)}</title><style>${style}</style></head>
<body><header><h1>${escapeHtml(this.#title)}</h1><p>${escapeHtml(this.#subtitle)}</p></header>
<main>
${body.join('\n')}
</main></body></html>
`;
  }

  #add(html: string): this {
    this.#blocks.push({ html });
    return this;
  }
}

function chartsHtml(charts: readonly Chart[]): string {
  return `<div class="charts">\n${documentsOf(charts)
    .map((svg) => `<figure>${svg}</figure>`)
    .join('\n')}\n</div>`;
}

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function cellText(cell: Cell): string {
  if (typeof cell === 'string') return cell;
  if (Number.isInteger(cell)) return String(cell);
  return Math.abs(cell) >= 1e-3 && Math.abs(cell) < 1e6 ? String(Number(cell.toPrecision(4))) : cell.toExponential(2);
}

const style = `
:root { color-scheme: light; font: 15px/1.5 system-ui, Roboto, sans-serif; color: ${colors.ink}; background: ${colors.page}; }
body { margin: 0 auto; max-width: 1180px; padding: 24px; }
header p { color: ${colors.muted}; margin-top: -8px; } h1 { font-weight: 600; } h2 { margin-top: 36px; font-weight: 600; }
figure { margin: 0; background: white; border: 1px solid ${colors.grid}; border-radius: 8px; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; display: block; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(360px, 100%), 1fr)); gap: 14px; }
.note { border-left: 4px solid ${colors.training}; background: ${colors.note}; padding: 8px 14px; }
.wide { max-width: 100%; overflow-x: auto; }
.headline { font-size: 18px; } .headline strong { font-size: 34px; font-weight: 600; margin-right: 8px; color: ${colors.heldOut}; }
table { border-collapse: collapse; background: white; } th, td { padding: 6px 10px; border: 1px solid ${colors.grid}; text-align: left; }
td { white-space: nowrap; } th { background: ${colors.head}; font-weight: 600; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.sample { background: white; border: 1px solid ${colors.grid}; border-radius: 8px; margin: 14px 0; padding: 12px 16px; }
.responses { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr)); gap: 14px; } h4 { margin: 6px 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: 13px/1.45 ui-monospace, monospace; } .prompt { color: ${colors.muted}; }
.tag { font-weight: 400; font-size: 12px; background: ${colors.grid}; border-radius: 4px; padding: 1px 6px; }
`;
