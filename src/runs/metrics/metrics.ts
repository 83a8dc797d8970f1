/**
 * A run's metrics, one row per step: `metrics.jsonl` for programs, TensorBoard for people, W&B on request.
 *
 *     metrics.row(step, { 'train/loss': 0.69, 'train/lr': 1e-5 });
 *     const rows = readMetrics('checkpoints/rm/run/metrics.jsonl');
 */
import { closeSync, existsSync, fdatasyncSync, openSync, readFileSync, truncateSync, writeSync } from 'node:fs';
import { lookup } from '../../lookup.ts';

export interface MetricRow {
  step: number;
  /** Milliseconds since 1970. */
  time: number;
  [name: string]: number;
}

/** A destination of metrics. Text and histograms are optional. */
export interface MetricSink {
  scalars(step: number, values: Record<string, number>, timeMs: number): void;
  /** The same metrics by number of examples, to compare runs with different batch sizes. */
  byExamples?(examples: number, values: Record<string, number>, timeMs: number): void;
  text?(step: number, tag: string, body: string, timeMs: number): void;
  histogram?(step: number, tag: string, values: ArrayLike<number>, timeMs: number): void;
  /** How the run ended. Called before the sink is closed. */
  ended?(status: 'finished' | 'interrupted' | 'failed', timeMs: number): void;
  flush(): void | Promise<void>;
  close(): void | Promise<void>;
}

/** Appends each line with a single write. A killed process leaves at most one incomplete line, which readers drop. */
export class JsonlMetrics implements MetricSink {
  readonly path: string;
  #file: number;

  constructor(path: string, options: { resumedAt?: number } = {}) {
    this.path = path;
    if (existsSync(path)) cutRows(path, options.resumedAt ?? Number.POSITIVE_INFINITY);
    this.#file = openSync(path, 'a');
  }

  scalars(step: number, values: Record<string, number>, timeMs: number): void {
    writeSync(this.#file, `${JSON.stringify({ step, time: timeMs, ...values }, spellNonFinite)}\n`);
  }

  flush(): void {
    fdatasyncSync(this.#file);
  }

  close(): void {
    closeSync(this.#file);
  }
}

/** JSON has no NaN, but a diverging run must be visible in its metrics. */
const spellNonFinite = (_: string, value: unknown) =>
  typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;

const nonFinite: Record<string, number> = {
  NaN: Number.NaN,
  Infinity: Number.POSITIVE_INFINITY,
  '-Infinity': Number.NEGATIVE_INFINITY,
};

/** The rows of a `metrics.jsonl`, in order. Safe while a run is writing it. */
export function readMetrics(path: string): MetricRow[] {
  if (!existsSync(path)) return [];
  return [...rowsOf(readFileSync(path))].map(({ row }) => row);
}

/** Removes the rows after a step, and an incomplete last line. */
export function cutRows(path: string, lastStep: number): void {
  const content = readFileSync(path);
  let end = 0;
  for (const { row, endByte } of rowsOf(content)) {
    if (row.step > lastStep || (row.step === lastStep && isLateEvaluation(row))) break;
    end = endByte;
  }
  if (end < content.length) truncateSync(path, end);
}

/**
 * A row with only an evaluation was written after its step's checkpoint, when the evaluation was due after an
 * interrupt. In that checkpoint it is still due, so a resumed run makes it again. (Step 0 is the evaluation before
 * training.)
 */
const isLateEvaluation = ({ step, time: _, ...values }: MetricRow) =>
  step > 0 && Object.keys(values).every((name) => name.startsWith('eval/'));

function* rowsOf(content: Buffer): Generator<{ row: MetricRow; endByte: number }> {
  let start = 0;
  while (start < content.length) {
    const newline = content.indexOf(0x0a, start);
    if (newline < 0) return;
    const row = parseRow(content.toString('utf8', start, newline));
    // Rows after an incomplete line are not read.
    if (row === undefined) return;
    start = newline + 1;
    yield { row, endByte: start };
  }
}

function parseRow(line: string): MetricRow | undefined {
  try {
    const row = JSON.parse(line, (_, value: unknown) =>
      typeof value === 'string' ? (lookup(nonFinite, value) ?? value) : value,
    );
    return typeof row === 'object' && row !== null && typeof row.step === 'number' ? row : undefined;
  } catch {
    return undefined;
  }
}

/** One writer for several sinks. */
export class Metrics {
  readonly #sinks: MetricSink[];
  constructor(sinks: MetricSink[]) {
    this.#sinks = sinks;
  }

  row(step: number, values: Record<string, number>, examples?: number): void {
    const time = Date.now();
    for (const sink of this.#sinks) {
      sink.scalars(step, values, time);
      if (examples !== undefined) sink.byExamples?.(examples, values, time);
    }
  }

  text(step: number, tag: string, body: string): void {
    const time = Date.now();
    for (const sink of this.#sinks) sink.text?.(step, tag, body, time);
  }

  histogram(step: number, tag: string, values: ArrayLike<number>): void {
    const time = Date.now();
    for (const sink of this.#sinks) sink.histogram?.(step, tag, values, time);
  }

  /** Syncs to disk. Called before a checkpoint is completed. */
  async flush(): Promise<void> {
    for (const sink of this.#sinks) await sink.flush();
  }

  ended(status: 'finished' | 'interrupted' | 'failed'): void {
    const time = Date.now();
    for (const sink of this.#sinks) sink.ended?.(status, time);
  }

  async close(): Promise<void> {
    for (const sink of this.#sinks) await sink.close();
  }
}

/** `training_history.json`: one list of steps and one of values per metric, for plotting tools. */
export function trainingHistory(rows: readonly MetricRow[]): Record<string, { step: number[]; value: number[] }> {
  const history: Record<string, { step: number[]; value: number[] }> = Object.create(null); // a metric may be called "constructor"
  for (const { step, time: _, ...values } of rows) {
    for (const [name, value] of Object.entries(values)) {
      history[name] ??= { step: [], value: [] };
      history[name].step.push(step);
      history[name].value.push(value as number);
    }
  }
  return history;
}
