/**
 * A run's metrics in columns, read from metrics.jsonl as it grows: each call reads only what was added. A file that was
 * cut (a run that was resumed from an earlier step) is read anew.
 *
 *     const table = new MetricTable('run/metrics.jsonl');
 *     await table.refresh();
 *     table.column('train/loss');      // { rows, values }
 */
import { type FileHandle, open } from 'node:fs/promises';
import { setImmediate as turn } from 'node:timers/promises';
import type { MetricColumns } from '../../runs/index.ts';
import type { MetricPoint } from '../api/runs.ts';
import { RowLayouts } from './row-layouts.ts';

export interface Column {
  /** Rows that have a value. */
  rows: number[];
  /** NaN and infinities included. */
  values: number[];
}

const pieceBytes = 4 << 20;

export class MetricTable {
  readonly path: string;
  steps: number[] = [];
  /** Milliseconds since 1970. */
  times: number[] = [];
  /** Grows with every time the file was cut and read anew. */
  generation = 0;
  #columns = new Map<string, Column>();
  #columnsByNames = new WeakMap<readonly string[], readonly (Column | undefined)[]>();
  #layouts = new RowLayouts();
  /** Bytes that were read; the last line's place and content, by which a cut file is known. */
  #end = 0;
  #lastStart = 0;
  #lastLine = '';
  #refreshing: Promise<void> | undefined;

  constructor(path: string) {
    this.path = path;
  }

  get names(): string[] {
    return [...this.#columns.keys()];
  }
  get lastStep(): number {
    return this.steps.at(-1) ?? 0;
  }
  column(name: string): Column | undefined {
    return this.#columns.get(name);
  }

  /** The columns with their steps, without what is not finite. */
  columns(): MetricColumns {
    return {
      names: this.names,
      column: (name) => {
        const { rows, values } = this.#columns.get(name) ?? { rows: [], values: [] };
        const [steps, finiteValues]: [number[], number[]] = [[], []];
        for (let i = 0; i < rows.length; i++) {
          const value = values[i] as number;
          if (!Number.isFinite(value)) continue;
          steps.push(this.steps[rows[i] as number] as number);
          finiteValues.push(value);
        }
        return { steps, values: finiteValues };
      },
    };
  }

  /** Newest value of every metric. */
  last(): Record<string, number | null> {
    return Object.fromEntries([...this.#columns].map(([name, { values }]) => [name, finite(values.at(-1))]));
  }

  /** Rows whose step is beyond `step`, as they were logged. */
  after(step: number): MetricPoint[] {
    let first = this.steps.length;
    while (first > 0 && (this.steps[first - 1] as number) > step) first--;
    return this.from(first);
  }

  /** Rows from a place on, as they were logged. */
  from(first: number): MetricPoint[] {
    const points: MetricPoint[] = this.steps
      .slice(first)
      .map((each, i) => ({ step: each, time: this.times[first + i] as number }));
    for (const [name, { rows, values }] of this.#columns) {
      for (let i = rows.length - 1; i >= 0 && (rows[i] as number) >= first; i--) {
        (points[(rows[i] as number) - first] as MetricPoint)[name] = finite(values[i]);
      }
    }
    return points;
  }

  /** Reads what was added; callers at the same time share one reading. */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#read().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #read(): Promise<void> {
    let file: FileHandle;
    try {
      file = await open(this.path, 'r');
    } catch {
      if (this.#end > 0) this.#reset();
      return;
    }
    try {
      const { size } = await file.stat();
      if (size === this.#end) return;
      if (this.#end > 0 && !(await this.#isContinued(file, size))) this.#reset();
      let rest: Buffer = Buffer.alloc(0);
      for (let at = this.#end; at < size; ) {
        const piece = Buffer.alloc(Math.min(pieceBytes, size - at));
        const { bytesRead } = await file.read(piece, 0, piece.length, at);
        if (bytesRead === 0) return;
        at += bytesRead;
        const bytes = piece.subarray(0, bytesRead);
        rest = this.#take(rest.length === 0 ? bytes : Buffer.concat([rest, bytes]));
        await turn();
      }
    } finally {
      await file.close();
    }
  }

  async #isContinued(file: FileHandle, size: number): Promise<boolean> {
    if (size < this.#end) return false;
    const bytes = Buffer.alloc(this.#end - this.#lastStart);
    await file.read(bytes, 0, bytes.length, this.#lastStart);
    return bytes.toString('utf8').trimEnd() === this.#lastLine;
  }

  /** Takes whole lines; returns the incomplete rest. */
  #take(bytes: Buffer): Buffer {
    const end = bytes.lastIndexOf(0x0a) + 1;
    if (end === 0) return bytes;
    const lastStart = end < 2 ? 0 : bytes.lastIndexOf(0x0a, end - 2) + 1;
    this.#lastStart = this.#end + lastStart;
    this.#lastLine = bytes.toString('utf8', lastStart, end).trimEnd();
    this.#end += end;
    this.#addLines(bytes, end);
    return bytes.subarray(end);
  }

  #addLines(bytes: Buffer, size: number): void {
    for (let start = 0; start < size; ) {
      const end = bytes.indexOf(0x0a, start);
      const layout = this.#layouts.read(bytes, start, end);
      if (layout !== undefined) this.#add(layout.names, layout.values);
      else this.#addOther(bytes.toString('utf8', start, end));
      start = end + 1;
    }
  }

  /** A row of a new layout, or with NaN and infinities, which are written as words; a broken line is left out. */
  #addOther(line: string): void {
    try {
      const row = JSON.parse(line) as Record<string, number | string>;
      if (typeof row?.step !== 'number') return;
      this.#layouts.learn(row);
      this.#add(Object.keys(row), Object.values(row).map(Number));
    } catch {}
  }

  #add(names: readonly string[], values: readonly number[]): void {
    const place = this.steps.length;
    const columns = this.#columnsOf(names);
    this.times.push(0);
    for (let i = 0; i < names.length; i++) {
      const value = values[i] as number;
      const column = columns[i];
      if (column !== undefined) {
        column.rows.push(place);
        column.values.push(value);
      } else if (names[i] === 'step') this.steps.push(value);
      else this.times[place] = value;
    }
  }

  /** Looked up once for a layout, whose rows share their list of names. */
  #columnsOf(names: readonly string[]): readonly (Column | undefined)[] {
    const known = this.#columnsByNames.get(names);
    if (known !== undefined) return known;
    const columns = names.map((name) => {
      if (name === 'step' || name === 'time') return undefined;
      const column = this.#columns.get(name) ?? { rows: [], values: [] };
      this.#columns.set(name, column);
      return column;
    });
    this.#columnsByNames.set(names, columns);
    return columns;
  }

  #reset(): void {
    this.generation++;
    this.steps = [];
    this.times = [];
    this.#columns = new Map();
    this.#columnsByNames = new WeakMap();
    this.#end = 0;
    this.#lastStart = 0;
    this.#lastLine = '';
  }
}

/** JSON has no NaN. */
export const finite = (value: number | undefined): number | null =>
  value !== undefined && Number.isFinite(value) ? value : null;

/** Tables of the runs that were looked at lately. */
export class MetricTables {
  readonly #tables = new Map<string, MetricTable>();
  readonly #most: number;

  constructor(most = 24) {
    this.#most = most;
  }

  async of(path: string): Promise<MetricTable> {
    const table = this.#tables.get(path) ?? new MetricTable(path);
    // Re-inserted, so that the one unused for longest comes first.
    this.#tables.delete(path);
    this.#tables.set(path, table);
    for (const oldest of this.#tables.keys()) {
      if (this.#tables.size <= this.#most) break;
      this.#tables.delete(oldest);
    }
    await table.refresh();
    return table;
  }
}
