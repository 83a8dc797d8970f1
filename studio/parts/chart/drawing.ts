/** A chart's settings for uPlot, from its series and the page's colours. */
import type uPlot from 'uplot';
import type { MetricAxis } from '../../../src/studio/api.ts';
import { color } from '../../app/theme.ts';
import { duration, percent, short } from '../../format/numbers.ts';
import { type Aligned, type ChartSeries, rangeOf, valueAt } from './series.ts';
import type { Trim } from './trim.ts';
import type { ChartView } from './view.ts';

export interface Drawing {
  series: readonly ChartSeries[];
  /** Of a share: the least top of its y axis. */
  shareTop: number | undefined;
  view: ChartView;
  /** What the y axis leaves out now: data grow while the drawing stays. */
  trim: () => Trim | undefined;
  onCursor: (index: number | undefined) => void;
  onPick?: ((index: number, nearest: number) => void) | undefined;
}

const font = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
/** Steps of a time axis, in seconds. */
const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800];

export function axisText(axis: MetricAxis, value: number): string {
  if (axis === 'time') return value === 0 ? '0' : duration(value);
  if (Math.abs(value) >= 1e6) return `${short(value / 1e6)} M`;
  return Math.abs(value) >= 1e4 ? `${short(value / 1e3)} k` : short(value);
}

export function optionsOf(drawing: Drawing, width: number, height: number): uPlot.Options {
  const { series, shareTop, view } = drawing;
  const axis = view.axis.peek();
  const log = view.log.peek();
  const line = { font, stroke: color('--muted'), grid: { stroke: color('--grid'), width: 1 }, ticks: { show: false } };
  const isSmooth = view.smoothing.peek() > 0;
  const banded = series.filter(({ band }) => band !== undefined);
  const edge = { width: 0, spanGaps: true, points: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    padding: [6, 8, 0, 0],
    scales: {
      x: { time: false, range: (_, low, high) => [...(view.zoom.peek() ?? wide(low, high))] as [number, number] },
      y: log
        ? { distr: 3 }
        : {
            range: (_, low, high) => {
              const trim = drawing.trim();
              return trim ? rangeOf(trim.low, trim.high, shareTop) : rangeOf(low, high, shareTop);
            },
          },
    },
    axes: [
      {
        ...line,
        size: 26,
        space: 64,
        ...(axis === 'time' ? { incrs: seconds, splits: everyStep } : {}),
        values: (_, splits) => splits.map((value) => axisText(axis, value)),
      },
      {
        ...line,
        size: 52,
        space: 34,
        values: (_, splits) =>
          splits.map((value) =>
            value === null || value === undefined
              ? ''
              : shareTop === undefined
                ? axisText('step', value)
                : percent(value),
          ),
      },
    ],
    series: [
      {},
      ...series.map((each) => ({
        stroke: faint(color(each.color), isSmooth ? 0.28 : 1),
        width: isSmooth ? 1 : 1.8,
        spanGaps: true,
        points: { show: !isSmooth && each.x.length <= 25, size: 5 },
        ...(each.dash ? { dash: [6, 4] } : {}),
      })),
      ...series.map((each) => ({
        show: isSmooth,
        stroke: color(each.color),
        width: 2,
        spanGaps: true,
        points: { show: each.x.length <= 25, size: 5, fill: color(each.color) },
        ...(each.dash ? { dash: [6, 4] } : {}),
      })),
      ...banded.flatMap(() => [edge, edge]),
    ],
    // After x, the recorded and the smoothed lines come the ends of the bands, high before low.
    bands: banded.map((each, i) => {
      const high = 1 + 2 * series.length + 2 * i;
      return { series: [high, high + 1], fill: faint(color(each.color), 0.18) };
    }),
    cursor: cursorOf(drawing),
    hooks: {
      ready: [(chart) => drawing.onPick && pickOnClick(chart, drawing)],
      setCursor: [
        (chart) =>
          drawing.onCursor(
            chart.cursor.left === undefined || chart.cursor.left < 0 ? undefined : (chart.cursor.idx ?? undefined),
          ),
      ],
      setSelect: [
        (chart) => {
          const { left, width: selected } = chart.select;
          if (selected > 6) view.zoom.value = [chart.posToVal(left, 'x'), chart.posToVal(left + selected, 'x')];
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

function cursorOf({ view, series }: Drawing): uPlot.Cursor {
  return {
    y: false,
    drag: { x: true, y: false, setScale: false },
    sync: { key: view.name, setSeries: false, scales: ['x', null] },
    points: { size: 7, show: series.length > 0 },
    bind: {
      dblclick: () => () => {
        view.zoom.value = undefined;
        return null;
      },
    },
  };
}

/** A click without a drag picks the point under the cursor, of the line that lies nearest. */
function pickOnClick(chart: uPlot, { onPick, series }: Drawing): void {
  let downAt = 0;
  chart.over.addEventListener('mousedown', (event) => {
    downAt = event.clientX;
  });
  chart.over.addEventListener('click', (event) => {
    const index = chart.cursor.idx;
    if (Math.abs(event.clientX - downAt) < 4 && index !== null && index !== undefined)
      onPick?.(index, nearestLine(chart, series.length, index));
  });
}

function nearestLine(chart: uPlot, lines: number, index: number): number {
  const distances = Array.from({ length: lines }, (_, i) => {
    const value = valueAt(chart.data[i + 1] ?? [], index);
    const top = value === undefined ? undefined : chart.valToPos(value, 'y');
    return top === undefined ? Number.POSITIVE_INFINITY : Math.abs(top - (chart.cursor.top ?? 0));
  });
  return Math.max(0, distances.indexOf(Math.min(...distances)));
}

/** uPlot rounds ticks by a table that knows only decimal steps; minutes and hours need their own. */
function everyStep(_: uPlot, __: number, low: number, high: number, step: number): number[] {
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (___, i) => (first + i) * step);
}

export const dataOf = ({ x, raw, smooth, bands }: Aligned) => [x, ...raw, ...smooth, ...bands] as uPlot.AlignedData;

const wide = (low: number, high: number) => (low === high ? [low - 0.5, high + 0.5] : [low, high]);

/** A colour of the style sheet, which are all #rrggbb, with some transparency. */
const faint = (hex: string, alpha: number) =>
  `${hex}${Math.round(255 * alpha)
    .toString(16)
    .padStart(2, '0')}`;
