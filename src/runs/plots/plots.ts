/**
 * Draws charts as PNG or SVG, without a browser, canvas or installed fonts.
 *
 *     writeFileSync('lengths.png', await toPng(histogram({ title: 'Length', values })));
 */
import type { MetricRow } from '../metrics/metrics.ts';
import type { Chart, Sheet } from './chart.ts';
import { fontFamily, fontFile } from './font.ts';
import { lineChart } from './lines.ts';
import { documentsOf, grid, sheetOf } from './sheet.ts';

export * from './bars.ts';
export type { Chart, Sheet } from './chart.ts';
export * from './charts.ts';
export * from './lines.ts';
export { inPercent } from './scale.ts';
export { grid } from './sheet.ts';
export * from './tokens.ts';

/** The chart as an SVG document, with its text as text. */
export function toSvg(chart: Chart | Sheet): string {
  return 'charts' in chart ? sheetOf(chart) : (documentsOf([chart])[0] as string);
}

/** Draws a chart as a PNG picture. */
export async function toPng(chart: Chart | Sheet, options: { scale?: number } = {}): Promise<Uint8Array> {
  const { renderAsync } = await import('@resvg/resvg-js');
  // On another thread: a long drawing on this one would make the rank look hung.
  const picture = await renderAsync(toSvg(chart), {
    fitTo: { mode: 'zoom', value: options.scale ?? 1.5 },
    font: {
      fontFiles: [fontFile],
      loadSystemFonts: false,
      defaultFontFamily: fontFamily,
      sansSerifFamily: fontFamily,
    },
  });
  return picture.asPng();
}

/** Panels that come first, in this order. */
const foremost = ['loss', 'accuracy', 'reward', 'teacher_kl', 'grad_norm', 'lr', 'kl', 'entropy', 'margin'];
/** Metrics without a panel: duplicates and bookkeeping. */
const left =
  /_by_examples$|^(reward_mean|kl_div|completion_length_(avg|max)|proper_ending_rate)$|^(epoch|step_time|grad_clipped|time|examples|tokens|skipped_steps)$/;
const shares = /(^|_)(accuracy|agreement|ended|clip_fraction|pass_at_\d+|proper_ending_rate)$/;
/** Metrics set by a schedule or a controller. */
const set = /^(lr|kl_coef|level_.*)$/;
const mostPanels = 12;

/** One panel per metric, with `train/` and `eval/` of the same name together. */
export function curveCharts(rows: readonly MetricRow[]): Chart[] {
  const panels = new Map<string, Map<string, { x: number[]; y: number[] }>>();
  for (const { step, time: _, ...values } of rows) {
    for (const [metric, value] of Object.entries(values)) {
      const slash = metric.indexOf('/');
      const [series, panel] = slash < 0 ? ['run', metric] : [metric.slice(0, slash), metric.slice(slash + 1)];
      if (left.test(panel)) continue;
      const inPanel = panels.get(panel) ?? new Map<string, { x: number[]; y: number[] }>();
      panels.set(panel, inPanel);
      const points = inPanel.get(series) ?? { x: [], y: [] };
      inPanel.set(series, points);
      points.x.push(step);
      points.y.push(value as number);
    }
  }
  const rank = (name: string) => {
    const at = foremost.indexOf(name);
    return at < 0 ? foremost.length : at;
  };
  return [...panels]
    .filter(([, series]) => !isConstant([...series.values()].map(({ y }) => y)))
    .sort(([a], [b]) => rank(a) - rank(b))
    .filter(([, series], i, all) => !all.slice(0, i).some(([, earlier]) => repeats(series, earlier)))
    .slice(0, mostPanels)
    .map(([title, series]) =>
      lineChart({
        title,
        series: [...series].map(([name, points]) => ({ name, ...points })),
        share: shares.test(title) && within(series, 0, 1),
        // They have no noise, and a mean would show values that were never set.
        ...(set.test(title) ? { smooth: false } : {}),
        width: 320,
        height: 190,
      }),
    );
}

type Panel = ReadonlyMap<string, { x: readonly number[]; y: readonly number[] }>;

/** Whether an earlier panel has all curves of this one. With a single reward, its curve equals the sum's. */
const repeats = (panel: Panel, earlier: Panel) =>
  [...panel].every(([name, { x, y }]) => {
    const other = earlier.get(name);
    return other !== undefined && equal(x, other.x) && equal(y, other.y);
  });

const equal = (a: readonly number[], b: readonly number[]) =>
  a.length === b.length && a.every((value, i) => Object.is(value, b[i]));

const within = (series: Panel, low: number, high: number) =>
  [...series.values()].every(({ y }) => y.every((value) => !(value < low || value > high)));

/** Constant metrics get no panel. */
function isConstant(lists: readonly (readonly number[])[]): boolean {
  const [first, ...rest] = lists.flat();
  return rest.length > 1 && rest.every((value) => value === first);
}

/** `training_curves.png`. */
export async function trainingCurves(rows: readonly MetricRow[], title?: string): Promise<Uint8Array> {
  return toPng(grid(curveCharts(rows), { title }));
}
