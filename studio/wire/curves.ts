/**
 * The metrics of runs as curves: down-sampled by the server, read again in more detail where a zoom asks for it, and
 * continued row by row while a run is watched.
 */
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { MetricAxis, MetricPoint, MetricsAnswer } from '../../src/studio/api.ts';
import { get, reconnections } from './requests.ts';

export interface Curve {
  x: number[];
  y: (number | null)[];
  step: number[];
}

/** The curves of one run by metric. */
export interface RunCurves {
  curves: Map<string, Curve>;
  lastStep: number;
  /** Whether the server left out points that a zoom could show. */
  thinned: boolean;
}

const points = 800;
const zoomPoints = 1500;

/** On the time axis the server gives seconds since the run's first row. */
export function curvesOf(answer: MetricsAnswer): RunCurves {
  return {
    curves: new Map(answer.series.map(({ name, x, y, step }) => [name, { x, y, step }])),
    lastStep: answer.lastStep,
    thinned: answer.rows > points,
  };
}

/** Adds a logged row. False: the x of this axis is not in the row, and the curves have to be read anew. */
export function append(run: RunCurves, axis: MetricAxis, row: MetricPoint): boolean {
  if (axis !== 'step') return false;
  const { step, time: _, ...values } = row;
  for (const [name, value] of Object.entries(values)) {
    const curve = run.curves.get(name) ?? { x: [], y: [], step: [] };
    if ((curve.x.at(-1) ?? Number.NEGATIVE_INFINITY) >= step) continue;
    run.curves.set(name, { x: [...curve.x, step], y: [...curve.y, value ?? null], step: [...curve.step, step] });
  }
  run.lastStep = Math.max(run.lastStep, step);
  return true;
}

export interface Asked {
  ids: readonly string[];
  /** Of these metrics; of all where it is left out. */
  names?: readonly string[];
  axis: MetricAxis;
  zoom: readonly [number, number] | undefined;
  /** Reads again after this many milliseconds. */
  every?: number | undefined;
}

export interface Curves {
  /** Runs in the order asked for; undefined until the first answer. */
  runs: Map<string, RunCurves> | undefined;
  error: Error | undefined;
  add: (id: string, rows: readonly MetricPoint[]) => void;
  reload: () => void;
}

export function useCurves({ ids, names, axis, zoom, every }: Asked): Curves {
  const [runs, setRuns] = useState<Map<string, RunCurves>>();
  const [error, setError] = useState<Error>();
  const [asked, setAsked] = useState(0);
  const later = useRef(0);
  const thinned = [...(runs?.values() ?? [])].some((run) => run.thinned);
  // Small runs are read whole: a zoom asks for nothing.
  const window = thinned ? zoom : undefined;
  const key = [ids.join(), names?.join(), axis, window?.join(), asked, reconnections.value].join('|');
  // `key` stands for what is asked; asked before the page is drawn, not after.
  useLayoutEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      const one = async (id: string) => {
        const answer = await get<MetricsAnswer>(
          `runs/${id}/metrics`,
          {
            names: names?.join(','),
            x: axis,
            points: window ? zoomPoints : points,
            ...(window ? { from: window[0], to: window[1] } : {}),
          },
          abort.signal,
        );
        const made = curvesOf(answer);
        return [id, window ? { ...made, thinned: true } : made] as const;
      };
      try {
        const read = await Promise.all(ids.map(one));
        setRuns(new Map(read));
        setError(undefined);
      } catch (failure) {
        if (!abort.signal.aborted) setError(failure as Error);
      }
    };
    const start = window ? setTimeout(read, 150) : void read();
    const clock =
      every === undefined ? undefined : setInterval(() => document.visibilityState === 'visible' && read(), every);
    return () => {
      abort.abort();
      clearTimeout(start);
      clearInterval(clock);
    };
  }, [key, every]);
  useEffect(() => () => clearTimeout(later.current), []);

  const reload = useCallback(() => setAsked((n) => n + 1), []);
  const add = (id: string, rows: readonly MetricPoint[]) => {
    const run = runs?.get(id);
    if (!run) return;
    const grown: RunCurves = { ...run, curves: new Map(run.curves) };
    const whole = rows.every((row) => append(grown, axis, row));
    if (!whole || [...grown.curves.values()].some(({ x }) => x.length > 4 * zoomPoints)) {
      clearTimeout(later.current);
      later.current = setTimeout(reload, 1000) as unknown as number;
    }
    setRuns(new Map(runs).set(id, grown));
  };
  return { runs, error, add, reload };
}
