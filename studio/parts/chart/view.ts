/** How the charts of a page are looked at: all of them share axis, zoom, smoothing and cursor. */
import { type Signal, signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { MetricAxis } from '../../../src/studio/api.ts';
import { kept } from '../../app/kept.ts';
import type { Trimming } from './trim.ts';

export interface ChartView {
  axis: Signal<MetricAxis>;
  /** 0 to 0.99. */
  smoothing: Signal<number>;
  log: Signal<boolean>;
  trimmed: Signal<Trimming>;
  /** A zoomed window moves on with the newest value. */
  follow: Signal<boolean>;
  /** The visible part of the x axis; undefined: all. */
  zoom: Signal<readonly [number, number] | undefined>;
  /** Charts with the same name share their cursor. */
  name: string;
}

const axis = kept<MetricAxis>('axis', 'step');
const smoothing = kept('smoothing', 0.4);
const follow = kept('follow', true);

export function useChartView(name: string): ChartView {
  // Another name is another view.
  return useMemo(
    () => ({
      axis,
      smoothing,
      follow,
      log: signal(false),
      trimmed: signal<Trimming>('far'),
      zoom: signal(undefined),
      name,
    }),
    [name],
  );
}

/** Keeps the width of a zoomed window and puts its end at the newest value. */
export function followTo(view: ChartView, newest: number): void {
  const zoom = view.zoom.peek();
  if (zoom && view.follow.peek() && newest > zoom[1]) view.zoom.value = [newest - (zoom[1] - zoom[0]), newest];
}
