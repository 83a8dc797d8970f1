/**
 * Shows a `Progress` on the console: on a terminal one line per task that is redrawn, elsewhere (a log file, CI) a
 * plain line every few seconds. Both show the share done, the rate, the time left and the latest values.
 *
 *     const progress = consoleProgress();
 *     await work({ progress });   //  training  ████████░░░░  64%  128/200 steps  41.2/s  2 s left  loss 0.231
 */
import { isLaunched } from '../../dist/beat.ts';
import { readPlace } from '../../dist/place.ts';
import type { Progress, ProgressTask } from '../../progress.ts';
import { hideLive, type LiveLine, showLive, visible } from './print.ts';

export interface ConsoleOptions {
  /** Where to write; standard error, so that a command's results can be piped. */
  stream?: { write(text: string): unknown; isTTY?: boolean; columns?: number };
  /** Milliseconds, from any origin. */
  now?: () => number;
}

type Values = Record<string, number | string>;

/** Of several ranks the first has the console. */
export const hasConsole = (): boolean => (readPlace(process.env)?.rank ?? 0) === 0;

/** What is said once: by the first rank, and not where `attune launch`, which all ranks hear it from, has said it. */
export const ifUnsaid = <Say>(say: Say): Say | undefined => (hasConsole() && !isLaunched() ? say : undefined);

const REDRAW_MS = 100;
const PLAIN_LINE_MS = 5_000;
const BAR_WIDTH = 20;

export function consoleProgress(options: ConsoleOptions = {}): Progress {
  const { stream = process.stderr, now = () => performance.now() } = options;
  if (!hasConsole()) return { start: () => ({ advance: () => {}, done: () => {} }) as ProgressTask };
  return {
    start: (label, total, unit = '', before = 0) => startTask({ label, total, unit, before }, stream, now),
  };
}

interface Task {
  label: string;
  total: number | undefined;
  unit: string;
  /** Steps done before a resume: they count for the share, not for the rate. */
  before: number;
}

function startTask(task: Task, stream: NonNullable<ConsoleOptions['stream']>, now: () => number): ProgressTask {
  const live = stream.isTTY === true;
  const started = now();
  let done = 0;
  let values: Values = {};
  let drawn = live ? Number.NEGATIVE_INFINITY : started;

  const draw = (time: number) => {
    drawn = time;
    const line = describe(task, done, (time - started) / 1000, values, live);
    stream.write(live ? `\r\u001b[2K${clip(line, stream.columns || 100)}` : `${line}\n`);
  };
  const line: LiveLine = { erase: () => stream.write('\r\u001b[2K'), draw: () => draw(now()) };
  if (live) {
    draw(started);
    showLive(line);
  }
  return {
    advance(amount = 1, latest = {}) {
      done += amount;
      values = { ...values, ...latest };
      const time = now();
      if (time - drawn >= (live ? REDRAW_MS : PLAIN_LINE_MS)) draw(time);
    },
    done(message) {
      hideLive(line);
      const seconds = (now() - started) / 1000;
      const unit = done === 1 ? task.unit.replace(/s$/, '') : task.unit;
      const counted = task.total === undefined && done === 0 ? '' : ` ${count(done)}${unit && ` ${unit}`}`;
      const rate = done > 0 && seconds > 0 ? ` (${count(done / seconds)}/s)` : '';
      const summary = message ?? `${counted.trim()}${counted && ' '}in ${duration(seconds)}${rate}`;
      stream.write(`${live ? '\r\u001b[2K' : ''}${visible(`${task.label}: ${summary}`)}\n`);
    },
  };
}

function describe(task: Task, done: number, seconds: number, values: Values, live: boolean): string {
  const { label, total, unit, before } = task;
  const rate = seconds > 0 ? done / seconds : 0;
  const parts = [label];
  if (total !== undefined && total > 0) {
    const share = Math.min(1, (before + done) / total);
    if (live) parts.push('█'.repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH, '░'));
    parts.push(`${Math.floor(share * 100)}%`, `${count(before + done)}/${count(total)}${unit && ` ${unit}`}`);
  } else {
    parts.push(`${count(done)}${unit && ` ${unit}`}`);
  }
  if (rate > 0) parts.push(`${count(rate)}/s`);
  const left = (total ?? 0) - before - done;
  if (rate > 0 && left > 0) parts.push(`${duration(left / rate)} left`);
  for (const [name, value] of Object.entries(values))
    parts.push(`${name} ${typeof value === 'number' ? short(value) : value}`);
  return visible(parts.join('  '));
}

/** 950, 12.5k, 3.2M: short, because the line changes ten times a second. */
function count(value: number): string {
  for (const [size, suffix] of [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e4, 'k'],
  ] as const) {
    if (value >= size) return `${trim(value / (suffix === 'k' ? 1e3 : size))}${suffix}`;
  }
  return trim(value);
}

function trim(value: number): string {
  return Number.isInteger(value) || value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

function short(value: number): string {
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e5 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

/** 0.4 s, 42 s, 3 min 05 s, 2 h 07 min. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (value: number) => String(value).padStart(2, '0');
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

function clip(line: string, columns: number): string {
  return line.length < columns ? line : `${line.slice(0, columns - 2)}…`;
}
