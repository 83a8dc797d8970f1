/** Draws one chart: plot, axes, title and legend. Also computes the room that they need around the plot. */
import type { Chart } from './chart.ts';
import { Plot } from './marks.ts';
import { labelSize, round, stroke, write } from './svg.ts';
import { shortened, textWidth } from './text.ts';
import { colors } from './tokens.ts';

const titleSize = 14;
const lineHeight = 16;
const swatch = 18;
const entryGap = 12;
/** The largest widths of a name below the plot, beside it, and in the legend. */
const [longestBelow, longestBeside, longestName] = [140, 200, 260];
const slant = 35;
const [sine, cosine] = [Math.sin((slant * Math.PI) / 180), Math.cos((slant * Math.PI) / 180)];

type Ticks = readonly { at: number; text: string }[];

const entryWidth = (name: string) => swatch + Math.min(longestName, textWidth(name, labelSize));
const longest = (texts: Ticks) => texts.reduce((width, { text }) => Math.max(width, textWidth(text, labelSize)), 0);

/** The room that a chart needs on each side of its plot. */
interface Margins {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** Everything drawn for one chart except its place on the sheet. */
export class Drawing {
  readonly chart: Chart;
  readonly margins: Margins;
  readonly #plot: Plot;
  /** Whether names below the plot are slanted, because they do not fit side by side. */
  readonly #slanted: boolean;
  readonly #below: Ticks;
  readonly #beside: Ticks;
  readonly #columns: readonly number[];

  constructor(chart: Chart) {
    this.chart = chart;
    this.#plot = new Plot(chart);
    const { x, y } = this.#plot;
    const place = chart.width / Math.max(1, x.ticks.length);
    this.#slanted = chart.x.ticks !== undefined && longest(x.ticks) + 6 > place;
    this.#below = (this.#slanted ? everyNth(x.ticks, place * sine) : this.#apart(x.ticks)).map(cutTo(longestBelow));
    const shown = chart.y.ticks ? everyNth(y.ticks, chart.height / Math.max(1, y.ticks.length)) : y.ticks;
    this.#beside = shown.map(cutTo(longestBeside));
    this.#columns = this.#legendColumns();
    this.margins = this.#margins();
  }

  /** The SVG elements, with the plot's upper left corner at 0, 0. */
  svg(): string {
    const { title } = this.chart;
    const heading = title ? write(title, 0, -10, { size: titleSize, color: colors.ink }) : '';
    return [heading, this.#axes(), this.#plot.svg(), this.#legend()].join('');
  }

  #axes(): string {
    const { width, height, x, y } = this.chart;
    const { left, top } = this.#plot;
    const parts: string[] = [];
    if (x.grid !== false)
      for (const { at } of this.#plot.x.ticks) parts.push(stroke(`M${round(left(at))},0v${height}`, colors.grid));
    if (y.grid !== false)
      for (const { at } of this.#plot.y.ticks) parts.push(stroke(`M0,${round(top(at))}h${width}`, colors.grid));
    parts.push(stroke(`M0,0v${height}h${width}`, colors.axis));
    for (const { at, text } of this.#below)
      parts.push(
        stroke(`M${round(left(at))},${height}v5`, colors.axis),
        this.#slanted
          ? write(text, left(at) + 4, height + 13, { anchor: 'end', turned: -slant })
          : write(text, left(at), height + 17, { anchor: 'middle' }),
      );
    for (const { at, text } of this.#beside)
      parts.push(stroke(`M0,${round(top(at))}h-5`, colors.axis), write(text, -8, top(at) + 4, { anchor: 'end' }));
    if (x.title) parts.push(write(x.title, width / 2, height + this.#belowTicks() + 13, { anchor: 'middle' }));
    if (y.title) parts.push(write(y.title, -this.#besideTicks() - 7, height / 2, { anchor: 'middle', turned: -90 }));
    return parts.join('');
  }

  /** The ticks whose labels do not overlap the previous one. */
  #apart(ticks: Ticks): Ticks {
    let end = Number.NEGATIVE_INFINITY;
    return ticks.filter(({ at, text }) => {
      const [middle, half] = [this.#plot.left(at), textWidth(text, labelSize) / 2];
      if (middle - half < end + 6) return false;
      end = middle + half;
      return true;
    });
  }

  #besideTicks = () => 8 + longest(this.#beside);
  #belowTicks = () => (this.#slanted ? 17 + longest(this.#below) * sine : 21);
  #belowAxis = () => this.#belowTicks() + (this.chart.x.title ? lineHeight : 0);

  /** The widths of as many columns as fit below the plot. */
  #legendColumns(): number[] {
    const entries = (this.chart.legend ?? []).map(({ name }) => entryWidth(name));
    for (let count = entries.length; count > 0; count--) {
      const columns = Array.from({ length: count }, (_, column) =>
        Math.max(...entries.filter((_, i) => i % count === column)),
      );
      const width = columns.reduce((sum, each) => sum + each + entryGap, -entryGap);
      if (count === 1 || width <= this.chart.width) return columns;
    }
    return [];
  }

  #legend(): string {
    const { legend = [], height } = this.chart;
    const columns = this.#columns;
    const parts: string[] = [];
    for (const [i, { name, color, line }] of legend.entries()) {
      const left = columns.slice(0, i % columns.length).reduce((sum, width) => sum + width + entryGap, 0);
      const top = height + this.#belowAxis() + 8 + lineHeight * Math.floor(i / columns.length) + 5;
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
    const { width, height, title = '', legend = [], x, y } = this.chart;
    const reach = this.#plot.reach();
    // How far the axis titles extend beyond the plot on both sides.
    const [across, down] = [x.title, y.title].map((text) => textWidth(text ?? '', labelSize) / 2) as [number, number];
    let left = Math.max(this.#besideTicks() + (y.title ? lineHeight : 0), across - width / 2, -reach.from);
    let right = Math.max(reach.to, textWidth(title, titleSize), width / 2 + across);
    for (const { name } of legend) right = Math.max(right, entryWidth(name));
    for (const { at, text } of this.#below) {
      const [middle, wide] = [this.#plot.left(at), textWidth(text, labelSize)];
      left = Math.max(left, (this.#slanted ? wide * cosine : wide / 2) - middle);
      if (!this.#slanted) right = Math.max(right, middle + wide / 2);
    }
    const rows = Math.ceil(legend.length / Math.max(1, this.#columns.length));
    return {
      left,
      top: Math.max(title ? 26 : 8, down - height / 2),
      right: right - width,
      bottom: Math.max(this.#belowAxis() + (rows > 0 ? 8 + lineHeight * rows : 0), down - height / 2),
    };
  }
}

const cutTo =
  (width: number) =>
  ({ at, text }: Ticks[number]) => ({ at, text: shortened(text, labelSize, width) });

/** Leaves out names if each has less room than the height of a line. */
const everyNth = (ticks: Ticks, place: number): Ticks => {
  const nth = Math.ceil(12 / Math.max(place, 0.01));
  return ticks.filter((_, i) => i % nth === 0);
};
