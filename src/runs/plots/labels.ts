/** Shared by all kinds of charts: titles, sizes, legends and groups. */
import type { Chart } from './chart.ts';
import { colorsOf } from './tokens.ts';

export interface Labels {
  title?: string;
  xLabel?: string;
  yLabel?: string;
  width?: number;
  height?: number;
}

export const sized = ({ title, width = 380, height = 240 }: Labels) => ({ ...(title ? { title } : {}), width, height });

/** A legend, if there is more than one name. */
export function legendOf(names: readonly string[], { line = false } = {}): Pick<Chart, 'legend'> {
  if (names.length < 2) return {};
  const palette = colorsOf(names);
  return { legend: names.map((name, i) => ({ name, color: palette[i] as string, line })) };
}

/** The name of bars without a group, if others have one. */
export const ungrouped = 'other';

export function groupsOf(items: readonly { group?: string }[]): string[] {
  const groups = new Set(items.map(({ group }) => group));
  return groups.size === 1 && groups.has(undefined) ? [] : [...groups].map((group) => group ?? ungrouped);
}
