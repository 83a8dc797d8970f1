/** Runs as lines of text. */
import type { RunEntry } from '../../runs/catalogue/entry.ts';

export function bytesText(bytes: number): string {
  for (const [size, unit] of [
    [1e12, 'TB'],
    [1e9, 'GB'],
    [1e6, 'MB'],
    [1e3, 'kB'],
  ] as const)
    if (bytes >= size) return `${(bytes / size).toFixed(1)} ${unit}`;
  return `${bytes} B`;
}

export function runColumns(runs: readonly RunEntry[]): string[][] {
  const head = ['run', 'kind', 'base', 'state', 'step', 'metric', 'snapshots', 'rollouts', 'size', 'begun', 'tags'];
  return [
    head,
    ...runs.map((run) => [
      run.name,
      run.kind,
      run.base ?? '',
      run.state,
      String(run.step),
      run.metric === undefined ? '' : `${run.metric.name} ${Number(run.metric.value.toPrecision(4))}`,
      String(run.snapshots.length),
      run.rollouts ? 'yes' : '',
      bytesText(run.bytes),
      run.created.slice(0, 16).replace('T', ' '),
      run.tags.map((tag) => `#${tag}`).join(' '),
    ]),
  ];
}

export function totalsText(runs: readonly RunEntry[]): string {
  const bytes = runs.reduce((sum, run) => sum + run.bytes, 0);
  const states = Object.entries(Object.groupBy(runs, ({ state }) => state)).map(
    ([state, some]) => `${some?.length} ${state}`,
  );
  return `${runs.length} run${runs.length === 1 ? '' : 's'}, ${bytesText(bytes)} (${states.join(', ')})`;
}

/** Rows as lines, each column as wide as its widest cell. */
export function columnsText(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows)
    row.forEach((cell, i) => {
      widths[i] = Math.max(widths[i] ?? 0, cell.length);
    });
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
