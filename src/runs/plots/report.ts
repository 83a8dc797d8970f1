/**
 * A report in one HTML file: headings, tables, charts and samples, nothing loaded from elsewhere.
 *
 *     const report = new Report('GRPO on chain_sum', 'tiny model, 200 steps');
 *     report.section('Curves').charts(curveCharts(rows));
 *     report.section('Samples').samples([{ prompt, completion, reward: 1 }]);
 *     writeFileSync('report.html', await report.html());
 */
import type { Chart } from './charts.ts';
import { toSvg } from './plots.ts';

export type Cell = string | number;

type Block = { html: string } | { chart: Chart };

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

  /** Something that readers often take wrongly, set apart. */
  note(text: string): this {
    return this.#add(`<p class="note">${escapeHtml(text)}</p>`);
  }

  chart(chart: Chart): this {
    this.#blocks.push({ chart });
    return this;
  }

  charts(charts: readonly Chart[]): this {
    this.#add('<div class="charts">');
    for (const chart of charts) this.chart(chart);
    return this.#add('</div>');
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

  /** A prompt with one or more answers, each with whatever numbers belong to it. */
  samples(
    samples: readonly {
      prompt: string;
      answers: readonly { label: string; text: string; values?: Record<string, number> }[];
    }[],
  ): this {
    const parts = samples.map(({ prompt, answers }) => {
      const columns = answers.map(({ label, text, values }) => {
        const numbers = Object.entries(values ?? {}).map(
          ([name, value]) => `<span class="tag">${escapeHtml(name)} ${escapeHtml(cellText(value))}</span>`,
        );
        return `<div class="answer"><h4>${escapeHtml(label)} ${numbers.join(' ')}</h4><pre>${escapeHtml(text)}</pre></div>`;
      });
      return `<div class="sample"><pre class="prompt">${escapeHtml(prompt)}</pre><div class="answers">${columns.join('')}</div></div>`;
    });
    return this.#add(parts.join('\n'));
  }

  async html(): Promise<string> {
    const body: string[] = [];
    for (const block of this.#blocks)
      body.push('html' in block ? block.html : `<figure>${await toSvg(block.chart)}</figure>`);
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

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function cellText(cell: Cell): string {
  if (typeof cell === 'string') return cell;
  if (Number.isInteger(cell)) return String(cell);
  return Math.abs(cell) >= 1e-3 && Math.abs(cell) < 1e6
    ? cell.toPrecision(4).replace(/\.?0+$/, '')
    : cell.toExponential(2);
}

const style = `
:root { color-scheme: light; font: 15px/1.5 system-ui, Roboto, sans-serif; color: #0f172a; background: #f8fafc; }
body { margin: 0 auto; max-width: 1180px; padding: 24px; }
header p { color: #475569; margin-top: -8px; } h1 { font-weight: 600; } h2 { margin-top: 36px; font-weight: 600; }
figure { margin: 0; background: white; border: 1px solid #e2e8f0; border-radius: 8px; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; display: block; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(360px, 1fr)); gap: 14px; }
.note { border-left: 4px solid #2563eb; background: #eff6ff; padding: 8px 14px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; background: white; } th, td { padding: 6px 10px; border: 1px solid #e2e8f0; text-align: left; }
td { white-space: nowrap; } th { background: #f1f5f9; font-weight: 600; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.sample { background: white; border: 1px solid #e2e8f0; border-radius: 8px; margin: 14px 0; padding: 12px 16px; }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 14px; } h4 { margin: 6px 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: 13px/1.45 ui-monospace, monospace; } .prompt { color: #475569; }
.tag { font-weight: 400; font-size: 12px; background: #e2e8f0; border-radius: 4px; padding: 1px 6px; }
`;
