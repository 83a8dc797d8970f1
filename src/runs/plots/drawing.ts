/** Draws one chart: its marks, axes, title and legend, and says how much room they take around the plot. */
import type { Chart, Mark, Point } from './chart.ts';
import { type Scale, scaleOf } from './scale.ts';
import { labelSize, round, stroke, write } from './svg.ts';
import { shortened, textWidth } from './text.ts';
import { colors } from './tokens.ts';

const titleSize = 14;
const markSize = 10;
const lineHeight = 16;
const swatch = 18;
const longestLabel = 140;
const longestName = 260;
const slant = 35;

const entryWidth = (name: string) => swatch + Math.min(longestName, textWidth(name, labelSize));

/** The room that a chart takes on each side of its plot. */
interface Margins {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** What is drawn of one chart: all but its place on the sheet. */
export class Drawing {
  readonly chart: Chart;
  readonly margins: Margins;
  readonly #x: Scale;
  readonly #y: Scale;
  readonly #columns: number;

  constructor(chart: Chart) {
    this.chart = chart;
    const points = chart.marks.flatMap(pointsOf);
    this.#x = scaleOf(chart.x, least(points, 'x'), most(points, 'x'));
    this.#y = scaleOf(chart.y, least(points, 'y'), most(points, 'y'));
    this.#columns = this.#legendColumns();
    this.margins = this.#margins();
  }

  /** The elements, with the plot's upper left corner at 0, 0. */
  svg(): string {
    const { title } = this.chart;
    const heading = title ? write(title, 0, -10, { size: titleSize, color: colors.ink }) : '';
    return [heading, this.#axes(), ...this.chart.marks.map((mark) => this.#mark(mark)), this.#legend()].join('');
  }

  #left = (x: number) => this.#x.of(x) * this.chart.width;
  #top = (y: number) => (1 - this.#y.of(y)) * this.chart.height;

  #axes(): string {
    const { width, height, x, y } = this.chart;
    const parts: string[] = [];
    const grid = (path: string) => parts.push(stroke(path, colors.grid));
    if (x.grid !== false) for (const { at } of this.#x.ticks) grid(`M${round(this.#left(at))},0v${height}`);
    if (y.grid !== false) for (const { at } of this.#y.ticks) grid(`M0,${round(this.#top(at))}h${width}`);
    parts.push(stroke(`M0,0v${height}h${width}`, colors.axis));
    for (const { at, text } of this.#shownBelow()) {
      const left = this.#left(at);
      parts.push(stroke(`M${round(left)},${height}v5`, colors.axis));
      const shown = shortened(text, labelSize, longestLabel);
      parts.push(
        x.slanted
          ? write(shown, left + 4, height + 13, { anchor: 'end', turned: -slant })
          : write(shown, left, height + 17, { anchor: 'middle' }),
      );
    }
    for (const { at, text } of this.#y.ticks) {
      const top = this.#top(at);
      parts.push(stroke(`M0,${round(top)}h-5`, colors.axis));
      parts.push(write(shortened(text, labelSize, longestLabel), -8, top + 4, { anchor: 'end' }));
    }
    if (x.title) parts.push(write(x.title, width / 2, height + this.#belowTicks() + 13, { anchor: 'middle' }));
    if (y.title) {
      const left = -this.#besideTicks() - 7;
      parts.push(write(y.title, left, height / 2, { anchor: 'middle', turned: -90 }));
    }
    return parts.join('');
  }

  /** The ticks below the plot whose texts do not run into the one before. */
  #shownBelow() {
    const { slanted, ticks } = this.chart.x;
    if (slanted || ticks) return this.#x.ticks;
    let end = Number.NEGATIVE_INFINITY;
    return this.#x.ticks.filter(({ at, text }) => {
      const [middle, half] = [this.#left(at), textWidth(text, labelSize) / 2];
      if (middle - half < end + 6) return false;
      end = middle + half;
      return true;
    });
  }

  #widest = (texts: readonly { text: string }[]) =>
    Math.min(longestLabel, Math.max(0, ...texts.map(({ text }) => textWidth(text, labelSize))));
  #besideTicks = () => 8 + this.#widest(this.#y.ticks);
  #belowTicks = () =>
    this.chart.x.slanted ? 17 + this.#widest(this.#x.ticks) * Math.sin((slant * Math.PI) / 180) : 21;
  #belowAxis = () => this.#belowTicks() + (this.chart.x.title ? lineHeight : 0);

  #legendColumns(): number {
    const names = this.chart.legend ?? [];
    const widest = Math.max(0, ...names.map(({ name }) => entryWidth(name)));
    return Math.max(1, Math.min(names.length, Math.floor((this.chart.width + 12) / (widest + 12))));
  }

  #legend(): string {
    const { legend = [], height } = this.chart;
    const parts: string[] = [];
    const columns = Array.from({ length: this.#columns }, (_, column) =>
      Math.max(0, ...legend.filter((_, i) => i % this.#columns === column).map(({ name }) => entryWidth(name))),
    );
    for (const [i, { name, color, line }] of legend.entries()) {
      const column = i % this.#columns;
      const left = columns.slice(0, column).reduce((sum, width) => sum + width + 12, 0);
      const top = height + this.#belowAxis() + 8 + lineHeight * Math.floor(i / this.#columns) + 5;
      parts.push(
        line
          ? stroke(`M${round(left)},${round(top)}h12`, color, ' stroke-width="3"')
          : `<rect x="${round(left + 1)}" y="${round(top - 5)}" width="10" height="10" fill="${color}"></rect>`,
      );
      parts.push(write(shortened(name, labelSize, longestName), left + swatch, top + 4));
    }
    return parts.join('');
  }

  #margins(): Margins {
    const { chart } = this;
    const { width, title, legend = [] } = chart;
    const ticks = this.#shownBelow();
    const ends = ticks.map(({ at, text }) => this.#left(at) + textWidth(text, labelSize) / 2);
    const starts = ticks.map(({ at, text }) => {
      const wide = Math.min(longestLabel, textWidth(text, labelSize));
      return this.#left(at) - (chart.x.slanted ? wide * Math.cos((slant * Math.PI) / 180) : wide / 2);
    });
    const texts = chart.marks.flatMap((mark) =>
      mark.kind === 'text' ? [this.#left(mark.at.x) + textWidth(mark.text, markSize)] : [],
    );
    const names = legend.map(({ name }) => entryWidth(name));
    const right = Math.max(
      ...[width, ...names, ...(chart.x.slanted ? [] : ends), ...texts],
      title ? textWidth(title, titleSize) : 0,
    );
    const beside = this.#besideTicks() + (chart.y.title ? lineHeight : 0);
    return {
      left: Math.max(beside, ...starts.map((start) => -start)),
      top: title ? 26 : 8,
      right: right - width,
      bottom: this.#belowAxis() + (legend.length > 0 ? 8 + lineHeight * Math.ceil(legend.length / this.#columns) : 0),
    };
  }

  #mark(mark: Mark): string {
    const place = ({ x, y }: Point) => `${round(this.#left(x))},${round(this.#top(y))}`;
    switch (mark.kind) {
      case 'line': {
        if (mark.points.length === 0) return '';
        const { width = 2, opacity, dashed } = mark;
        const more = `${opacity === undefined ? '' : ` stroke-opacity="${opacity}"`}${dashed ? ' stroke-dasharray="5,4"' : ''}`;
        return stroke(`M${mark.points.map(place).join('L')}`, mark.color, ` stroke-width="${width}"${more}`);
      }
      case 'band': {
        if (mark.points.length === 0) return '';
        const there = mark.points.map(({ x, high }) => place({ x, y: high }));
        const back = mark.points.map(({ x, low }) => place({ x, y: low })).reverse();
        return `<path d="M${[...there, ...back].join('L')}Z" fill="${mark.color}" fill-opacity="0.15"></path>`;
      }
      case 'boxes': {
        const paths = mark.boxes.map(({ from, to }) => {
          const [left, right] = [round(this.#left(from.x)), round(this.#left(to.x))];
          const [bottom, top] = [round(this.#top(from.y)), round(this.#top(to.y))];
          return top === bottom || left === right ? '' : `M${left},${bottom}V${top}H${right}V${bottom}Z`;
        });
        return `<path d="${paths.join('')}" fill="${mark.color}" fill-opacity="${mark.opacity ?? 1}"></path>`;
      }
      case 'dots': {
        const circles = mark.dots.map((dot) => {
          const [x, y] = place(dot).split(',');
          return `<circle cx="${x}" cy="${y}" r="${round(dot.radius ?? 2.6)}"></circle>`;
        });
        return `<g fill="${mark.color}" fill-opacity="${mark.opacity ?? 1}">${circles.join('')}</g>`;
      }
      case 'rule':
        return stroke(`M${round(this.#left(mark.x))},0v${this.chart.height}`, colors.muted, ' stroke-dasharray="5,4"');
      case 'text': {
        const [left, top] = [this.#left(mark.at.x), this.#top(mark.at.y)];
        const style = { size: markSize, color: colors.ink };
        if (mark.side === 'right') return write(mark.text, left + 3, top + 3.5, style);
        return write(mark.text, left, mark.side === 'above' ? top - 3 : top + 11, { ...style, anchor: 'middle' });
      }
    }
  }
}

/** The points that an axis has to have room for. */
function pointsOf(mark: Mark): Partial<Point>[] {
  switch (mark.kind) {
    case 'line':
      return [...mark.points];
    case 'band':
      return mark.points.flatMap(({ x, low, high }) => [
        { x, y: low },
        { x, y: high },
      ]);
    case 'boxes':
      return mark.boxes.flatMap(({ from, to }) => [from, to]);
    case 'dots':
      return [...mark.dots];
    case 'rule':
      return [{ x: mark.x }];
    case 'text':
      return [];
  }
}

const least = (points: readonly Partial<Point>[], axis: 'x' | 'y') =>
  points.reduce((low, point) => Math.min(low, point[axis] ?? low), Number.POSITIVE_INFINITY);
const most = (points: readonly Partial<Point>[], axis: 'x' | 'y') =>
  points.reduce((high, point) => Math.max(high, point[axis] ?? high), Number.NEGATIVE_INFINITY);
