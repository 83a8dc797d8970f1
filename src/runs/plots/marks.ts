/** Draws the marks between the axes of a chart. */
import type { Chart, Mark, Point } from './chart.ts';
import { type Scale, scaleOf } from './scale.ts';
import { round, stroke, write } from './svg.ts';
import { textWidth } from './text.ts';
import { colors } from './tokens.ts';

type Text = Extract<Mark, { kind: 'text' }>;

/** Font sizes for numbers on bars, tried in order. If numbers still overlap in the last one, they are omitted. */
const textSizes = [10, 8];

/** The plot of a chart, which maps data coordinates to pixels from the upper left corner. */
export class Plot {
  readonly chart: Chart;
  readonly x: Scale;
  readonly y: Scale;
  readonly #size: number | undefined;

  constructor(chart: Chart) {
    this.chart = chart;
    const points = chart.marks.flatMap(pointsOf);
    this.x = scaleOf(chart.x, least(points, 'x'), most(points, 'x'));
    this.y = scaleOf(chart.y, least(points, 'y'), most(points, 'y'));
    this.#size = textSizes.find((size) => this.#texts().every((mark) => this.#fits(mark, size)));
  }

  left = (x: number) => this.x.of(x) * this.chart.width;
  top = (y: number) => (1 - this.y.of(y)) * this.chart.height;

  svg = () => this.chart.marks.map((mark) => this.#mark(mark)).join('');

  /** How far texts beside points extend, from the plot's left edge. */
  reach(): { from: number; to: number } {
    let [from, to] = [0, this.chart.width];
    for (const { at, text, side } of this.#texts()) {
      const width = textWidth(text, this.#size ?? 0) + 3;
      if (side === 'left') from = Math.min(from, this.left(at.x) - width);
      if (side === 'right') to = Math.max(to, this.left(at.x) + width);
    }
    return { from, to };
  }

  #texts = () => this.chart.marks.filter((mark): mark is Text => mark.kind === 'text');

  #fits({ at, text, room }: Text, size: number): boolean {
    return room === undefined || textWidth(text, size) <= Math.abs(this.left(at.x + room) - this.left(at.x));
  }

  #place = ({ x, y }: Point) => `${round(this.left(x))},${round(this.top(y))}`;

  #mark(mark: Mark): string {
    switch (mark.kind) {
      case 'line': {
        if (mark.points.length === 0) return '';
        const { width = 2, opacity, dashed } = mark;
        const more = `${opacity === undefined ? '' : ` stroke-opacity="${opacity}"`}${dashed ? ' stroke-dasharray="5,4"' : ''}`;
        return stroke(`M${mark.points.map(this.#place).join('L')}`, mark.color, ` stroke-width="${width}"${more}`);
      }
      case 'band': {
        if (mark.points.length === 0) return '';
        const there = mark.points.map(({ x, high }) => this.#place({ x, y: high }));
        const back = mark.points.map(({ x, low }) => this.#place({ x, y: low })).reverse();
        return `<path d="M${[...there, ...back].join('L')}Z" fill="${mark.color}" fill-opacity="0.15"></path>`;
      }
      case 'boxes': {
        const paths = mark.boxes.map(({ from, to }) => {
          const [left, right] = [round(this.left(from.x)), round(this.left(to.x))];
          const [bottom, top] = [round(this.top(from.y)), round(this.top(to.y))];
          return top === bottom || left === right ? '' : `M${left},${bottom}V${top}H${right}V${bottom}Z`;
        });
        return `<path d="${paths.join('')}" fill="${mark.color}" fill-opacity="${mark.opacity ?? 1}"></path>`;
      }
      case 'dots': {
        const circles = mark.dots.map(
          ({ x, y, radius = 2.6 }) =>
            `<circle cx="${round(this.left(x))}" cy="${round(this.top(y))}" r="${round(radius)}"></circle>`,
        );
        return `<g fill="${mark.color}" fill-opacity="${mark.opacity ?? 1}">${circles.join('')}</g>`;
      }
      case 'rule':
        return stroke(`M${round(this.left(mark.x))},0v${this.chart.height}`, colors.muted, ' stroke-dasharray="5,4"');
      case 'text':
        return this.#text(mark);
    }
  }

  #text(mark: Text): string {
    if (this.#size === undefined) return '';
    const [left, top] = [this.left(mark.at.x), this.top(mark.at.y)];
    const style = { size: this.#size, color: colors.ink };
    if (mark.side === 'right') return write(mark.text, left + 3, top + 3.5, style);
    if (mark.side === 'left') return write(mark.text, left - 3, top + 3.5, { ...style, anchor: 'end' });
    return write(mark.text, left, mark.side === 'above' ? top - 3 : top + 11, { ...style, anchor: 'middle' });
  }
}

/** The points that the axes must include. */
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
