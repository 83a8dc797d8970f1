/** Arranges charts in SVG documents: one each, or several on a sheet with plots of equal size and equal margins. */
import type { Chart, Sheet } from './chart.ts';
import { Drawing } from './drawing.ts';
import { fontFamily } from './font.ts';
import { labelSize, round, write } from './svg.ts';
import { textWidth } from './text.ts';
import { colors } from './tokens.ts';

const padding = 14;
const spacing = 28;
const headingSize = 18;

/** Several charts on one sheet, with plots of equal size. */
export function grid(
  charts: readonly Chart[],
  { columns, title, subtitle }: { columns?: number; title?: string | undefined; subtitle?: string | undefined } = {},
): Sheet {
  const shown = columns ?? (charts.length > 4 ? 3 : Math.min(2, charts.length));
  return { title, subtitle, columns: shown, charts: sameSize(charts) };
}

/** Gives all plots the size of the largest. */
export function sameSize(charts: readonly Chart[]): Chart[] {
  const largest = (side: 'width' | 'height') => Math.max(0, ...charts.map((chart) => chart[side]));
  const [width, height] = [largest('width'), largest('height')];
  return charts.map((chart) => ({ ...chart, width, height }));
}

/** Documents of charts that are shown in one row, with equal size and their plots at the same position. */
export function documentsOf(charts: readonly Chart[]): string[] {
  const drawings = charts.map((chart) => new Drawing(chart));
  const [width, height] = [new Track(drawings, 'width'), new Track(drawings, 'height')];
  return drawings.map((drawing) => documentOf(width.size, height.size, placed(drawing, width.before, height.before)));
}

export function sheetOf({ title, subtitle, columns, charts }: Sheet): string {
  const drawings = charts.map((chart) => new Drawing(chart));
  const shown = Math.max(1, Math.min(columns, charts.length));
  const across = Array.from(
    { length: shown },
    (_, column) =>
      new Track(
        drawings.filter((_, i) => i % shown === column),
        'width',
      ),
  );
  const down = Array.from(
    { length: Math.ceil(charts.length / shown) },
    (_, row) => new Track(drawings.slice(row * shown, (row + 1) * shown), 'height'),
  );
  const heading = (title ? headingSize + 14 : 0) + (subtitle ? 17 : 0);
  const parts = drawings.map((drawing, i) => {
    const [column, row] = [i % shown, Math.floor(i / shown)];
    return placed(drawing, startOf(across, column), heading + startOf(down, row));
  });
  if (title) parts.push(write(title, 0, headingSize - 3, { size: headingSize, color: colors.ink }));
  if (subtitle) parts.push(write(subtitle, 0, heading - 14, { color: colors.muted }));
  const width = Math.max(lengthOf(across), textWidth(title ?? '', headingSize), textWidth(subtitle ?? '', labelSize));
  return documentOf(width, heading + lengthOf(down), parts.join(''));
}

/** A row or column: the size of its largest plot, and the widest margins on both sides. */
class Track {
  readonly before: number;
  readonly size: number;

  constructor(drawings: readonly Drawing[], side: 'width' | 'height') {
    const most = (of: (drawing: Drawing) => number) =>
      Math.ceil(drawings.reduce((largest, drawing) => Math.max(largest, of(drawing)), 0));
    this.before = most(({ margins }) => (side === 'width' ? margins.left : margins.top));
    const after = most(({ margins }) => (side === 'width' ? margins.right : margins.bottom));
    this.size = this.before + most(({ chart }) => chart[side]) + after;
  }
}

const lengthOf = (tracks: readonly Track[]) =>
  Math.max(0, tracks.reduce((sum, { size }) => sum + size + spacing, 0) - spacing);

/** The position at which the plots of a track begin. */
const startOf = (tracks: readonly Track[], index: number) =>
  tracks.slice(0, index).reduce((sum, { size }) => sum + size + spacing, tracks[index]?.before ?? 0);

/** A chart with its plot's upper left corner at this point. */
const placed = (drawing: Drawing, left: number, top: number) =>
  `<g transform="translate(${round(left)},${round(top)})">${drawing.svg()}</g>`;

function documentOf(width: number, height: number, body: string): string {
  const [across, down] = [round(width + 2 * padding), round(height + 2 * padding)];
  const size = `width="${across}" height="${down}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="${-padding} ${-padding} ${across} ${down}" font-family="${fontFamily}, sans-serif"><rect x="${-padding}" y="${-padding}" ${size} fill="white"></rect>${body}</svg>`;
}
