/** A chart as data, which `charts.ts` makes from numbers and `drawing.ts` draws. */
import type { Axis } from './scale.ts';

/** A chart: its axes, and the marks between them in data coordinates. */
export interface Chart {
  title?: string;
  width: number;
  height: number;
  x: Axis;
  y: Axis;
  /** Drawn in this order, so later ones cover earlier ones. */
  marks: readonly Mark[];
  legend?: readonly { name: string; color: string; line?: boolean }[];
}

/** Several charts, in rows. */
export interface Sheet {
  title?: string | undefined;
  subtitle?: string | undefined;
  columns: number;
  charts: readonly Chart[];
}

export interface Point {
  x: number;
  y: number;
}

export type Mark =
  | { kind: 'line'; points: readonly Point[]; color: string; width?: number; opacity?: number; dashed?: boolean }
  | { kind: 'band'; points: readonly { x: number; low: number; high: number }[]; color: string }
  | { kind: 'boxes'; boxes: readonly { from: Point; to: Point }[]; color: string; opacity?: number }
  | { kind: 'dots'; dots: readonly (Point & { radius?: number })[]; color: string; opacity?: number }
  /** A dashed line across the plot. */
  | { kind: 'rule'; x: number }
  /** A text beside a point. `room` is its available length along the axis. */
  | { kind: 'text'; at: Point; text: string; side: 'above' | 'below' | 'left' | 'right'; room?: number };
