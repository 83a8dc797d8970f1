/**
 * One panel of curves: the smoothed line over the faint recorded one, values at the cursor in the legend. Drag to zoom,
 * double-click for all, arrows to move the cursor, click or Enter to go to that step.
 */
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { theme } from '../../app/theme.ts';
import { exact, percent, short } from '../../format/numbers.ts';
import { Explain } from '../explain.tsx';
import { axisText, dataOf, optionsOf } from './drawing.ts';
import { useSeen } from './seen.ts';
import { align, type ChartSeries, rangeOf, stepAt, valueAt } from './series.ts';
import { type Trim, trimOf } from './trim.ts';
import type { ChartView } from './view.ts';

export interface ChartProps {
  title: string;
  /** The term or metric that the question mark explains. */
  term?: string;
  series: readonly ChartSeries[];
  /** Of a share: the least top of its y axis. */
  shareTop?: number | undefined;
  unit?: string | undefined;
  tall?: boolean;
  view: ChartView;
  /** Goes to a step's rollouts; `series` is the one whose line lies nearest, or the first. */
  onPick?: ((step: number, series: ChartSeries) => void) | undefined;
}

/** Nothing is drawn yet. */
const none = align([], 0, false);

export function Chart({ title, term, series, shareTop, unit, tall = false, view, onPick }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const at = useSignal<number | undefined>(undefined);
  const [smoothing, log, zoom, axis] = [view.smoothing.value, view.log.value, view.zoom.value, view.axis.value];
  const trimmed = view.trimmed.value;
  const share = shareTop !== undefined;
  const seen = useSeen(box);
  const aligned = useMemo(() => (seen ? align(series, smoothing, log) : none), [series, smoothing, log, seen]);
  const trim = useMemo(() => (log || !seen ? undefined : trimOf(series, trimmed)), [series, trimmed, log, seen]);
  const newestTrim = useRef(trim);
  newestTrim.current = trim;
  const newest = useRef(aligned);
  newest.current = aligned;
  const pick = (index: number, nearest = 0) => {
    const [x, chosen] = [newest.current.x[index], series[nearest]];
    const step = x === undefined || !chosen ? undefined : stepAt(chosen, x);
    if (step !== undefined && chosen) onPick?.(step, chosen);
  };
  const picks = useRef(pick);
  picks.current = pick;

  // What the drawing itself depends on; data and zoom only move it.
  const shape = JSON.stringify([
    series.map(({ color, dash, x, band }) => [color, dash, x.length <= 25, band !== undefined]),
    smoothing > 0,
    log,
    trimmed,
    axis,
    shareTop,
    theme.value,
    onPick !== undefined,
  ]);
  // `shape` stands for them.
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || !seen) return;
    const drawing = {
      series,
      shareTop,
      view,
      trim: () => newestTrim.current,
      onCursor: (index: number | undefined) => {
        at.value = index;
      },
      onPick: onPick && ((index: number, nearest: number) => picks.current(index, nearest)),
    };
    const made = new uPlot(
      optionsOf(drawing, element.clientWidth, element.clientHeight),
      dataOf(newest.current),
      element,
    );
    chart.current = made;
    const observer = new ResizeObserver(() =>
      made.setSize({ width: element.clientWidth, height: element.clientHeight }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = undefined;
    };
  }, [shape, view, seen]);
  // A zoom draws the same data anew.
  useEffect(() => chart.current?.setData(dataOf(aligned)), [aligned, zoom]);

  const move = (event: KeyboardEvent) => {
    const drawn = chart.current;
    if (!drawn || event.target !== event.currentTarget) return;
    const last = aligned.x.length - 1;
    const here = at.peek() ?? last;
    if (event.key === 'Enter') return pick(here);
    if (event.key === 'Escape') {
      view.zoom.value = undefined;
      return;
    }
    const jump = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last }[event.key];
    if (jump === undefined) return;
    event.preventDefault();
    const left = drawn.valToPos(aligned.x[Math.max(0, Math.min(last, jump))] ?? 0, 'x');
    drawn.setCursor({ left, top: drawn.over.clientHeight / 2 });
  };
  return (
    <figure class="chart">
      <div class="chart-head">
        <h3>
          {title}
          {unit && <span class="unit"> {unit}</span>}
          {term && <Explain term={term} />}
        </h3>
        <span class="chart-at">
          {at.value === undefined ? (
            <Beyond trim={trim} shareTop={shareTop} onPick={onPick} />
          ) : (
            `${axisName[axis]} ${axisText(axis, aligned.x[at.value] ?? 0)}`
          )}
        </span>
      </div>
      <Legend series={series} rows={aligned.smooth} raw={aligned.raw} at={at.value} share={share} />
      {/* biome-ignore lint/a11y/useSemanticElements: a drawing that arrows move in, for which there is no element */}
      <div
        ref={box}
        role="group"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: as above
        tabIndex={0}
        class={`chart-box${tall ? ' tall' : ''}${onPick ? ' pickable' : ''}`}
        aria-label={summary(title, series, share)}
        onKeyDown={move}
      />
    </figure>
  );
}

export const axisName = { step: 'step', examples: 'examples', tokens: 'tokens', time: 'after' } as const;

interface LegendProps {
  series: readonly ChartSeries[];
  rows: readonly (readonly (number | null | undefined)[])[];
  raw: readonly (readonly (number | null | undefined)[])[];
  at: number | undefined;
  share: boolean;
}

function Legend({ series, rows, raw, at, share }: LegendProps) {
  return (
    <div class={series.length > 3 ? 'chart-legend many' : 'chart-legend'}>
      {series.map((each, i) => {
        const index = at ?? Number.POSITIVE_INFINITY;
        const recorded = valueAt(raw[i] ?? [], index);
        const shown = valueAt(rows[i] ?? [], index);
        const title = `${each.label}: ${exact(recorded)}${shown === recorded ? '' : ' recorded, the number beside it is smoothed'}`;
        return (
          <span key={each.label} style={{ '--own': `var(${each.color})` }} title={title}>
            <i class={each.dash ? 'dash' : ''} />
            <span class="cut">{each.label}</span>
            <b>{share ? percent(shown) : short(shown)}</b>
          </span>
        );
      })}
    </div>
  );
}

interface BeyondProps {
  trim: Trim | undefined;
  shareTop: number | undefined;
  onPick: ChartProps['onPick'];
}

/** Names the highest value where the axis ends below it. */
function Beyond({ trim, shareTop, onPick }: BeyondProps) {
  if (!trim || trim.top.value <= rangeOf(trim.low, trim.high, shareTop)[1]) return null;
  const { value, step, series } = trim.top;
  const text = `↑ ${shareTop === undefined ? short(value) : percent(value)} at step ${step}`;
  const title = `${series.label}: ${exact(value)} lies above the panel. "Show spikes" draws it.`;
  if (!onPick) return <span title={title}>{text}</span>;
  return (
    <button
      type="button"
      class="link-button"
      title={`${title} Click for the step's rollouts.`}
      onClick={() => onPick(step, series)}
    >
      {text}
    </button>
  );
}

/** For those who cannot see the curve. */
function summary(title: string, series: readonly ChartSeries[], share: boolean): string {
  const write = share ? percent : short;
  const parts = series.map(({ label, y }) => {
    const known = y.filter((value) => value !== null);
    return `${label} from ${write(known[0])} to ${write(known.at(-1))}`;
  });
  return `${title}: ${parts.join('; ')}. Arrow keys move the cursor, Enter opens the step.`;
}
