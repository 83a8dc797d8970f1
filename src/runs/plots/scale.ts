/** Maps numbers to pixels: the ends of an axis, its ticks and their labels. */

export interface Axis {
  title?: string | undefined;
  /** The ends of the axis. Without them, or for an `undefined` end, the data decide. */
  ends?: readonly [number | undefined, number | undefined];
  log?: boolean;
  /** Extends ends that the data decide outwards to a tick. */
  nice?: boolean;
  /** Ticks only at whole numbers. */
  whole?: boolean;
  /** The approximate number of ticks. */
  count?: number;
  /** Ticks at given positions with given labels, such as names. */
  ticks?: readonly { at: number; text: string }[];
  /** Whether grid lines are drawn at the ticks. */
  grid?: boolean;
  /** Labels the ticks in percent. */
  percent?: boolean;
}

export interface Scale {
  /** The position of a value as a share of the axis. */
  of(value: number): number;
  ticks: readonly { at: number; text: string }[];
}

/** The scale for values between `low` and `high`. `high` is below `low` if there are none. */
export function scaleOf(axis: Axis, low: number, high: number): Scale {
  const [from, to] = endsOf(axis, low, high);
  if (axis.log) return logScale(from, to);
  const places = axis.ticks ? [] : ticksBetween(from, to, axis);
  const write = writerOf(places, axis);
  return {
    of: (value) => (value - from) / (to - from),
    ticks: axis.ticks ?? places.map((at) => ({ at, text: write(at) })),
  };
}

function endsOf(
  { ends: [first, last] = [undefined, undefined], log, nice, count = 6 }: Axis,
  low: number,
  high: number,
) {
  let [from, to] = low > high ? (log ? [0.1, 1] : [0, 1]) : [exact(low, log), exact(high, log)];
  if (to - from <= Math.max(smallest, 1e-12 * Math.max(Math.abs(from), Math.abs(to))))
    [from, to] = log ? [from / 2, to * 2] : [from - apart(from), to + apart(to)];
  if (nice && log) [from, to] = [logStepBelow(from), 1 / logStepBelow(1 / to)];
  else if (nice)
    // Extending the axis may enlarge the step, so this repeats until it is stable.
    for (let step = 0, next = stepOf(first ?? from, last ?? to, count); next !== step; ) {
      step = next;
      [from, to] = [rounded(Math.floor(from / step + 1e-9), step), rounded(Math.ceil(to / step - 1e-9), step)];
      next = stepOf(first ?? from, last ?? to, count);
    }
  from = first ?? from;
  to = last ?? to;
  return from === to ? ([from, from + 1] as const) : ([from, to] as const);
}

/** The margin on both sides of a single value. */
const apart = (value: number) => (Math.abs(value) < 1e-290 ? 0.5 : Math.abs(value) * 0.05);

/** Outside this range, powers of ten are inexact or the length of an axis overflows. */
const [smallest, largest] = [1e-300, 1e300];
const exact = (value: number, log = false) => Math.max(log ? smallest : -largest, Math.min(largest, value));

/** The largest of 1, 2 and 5 times a power of ten that does not exceed the value. */
function logStepBelow(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  return power * ([5, 2].find((factor) => factor * power <= value * (1 + 1e-9)) ?? 1);
}

/** 1, 2 or 5 times a power of ten, so that about `count` steps cover the axis. */
function stepOf(from: number, to: number, count: number): number {
  const raw = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * (raw >= 7.08 * power ? 10 : raw >= 3.17 * power ? 5 : raw >= 1.42 * power ? 2 : 1);
}

/** `n × step` as the nearest short decimal: 3 × 0.1 gives 0.3. */
const rounded = (n: number, step: number) => (step < 1 ? n / Math.round(1 / step) : n * step);

function ticksBetween(from: number, to: number, { count = 6, whole = false }: Axis): number[] {
  const step = Math.max(whole ? 1 : 0, stepOf(from, to, count));
  const ticks: number[] = [];
  const first = Math.ceil(from / step - 1e-6);
  for (let i = 0; i <= 2 * count && (first + i) * step <= to + 1e-6 * step; i++) ticks.push(rounded(first + i, step));
  return ticks;
}

function logScale(from: number, to: number): Scale {
  const [a, b] = [Math.log10(from), Math.log10(to)];
  const factors = b - a > 2 ? [1] : b - a > 1 ? [1, 3] : [1, 2, 5];
  const ticks: number[] = [];
  // At most about eight powers, because more labels would overlap.
  const every = Math.max(1, Math.ceil((b - a) / 8));
  for (let power = Math.floor(a); power <= Math.ceil(b); power += every)
    for (const factor of factors) {
      const at = Number(`${factor}e${power}`);
      if (at >= from * (1 - 1e-9) && at <= to * (1 + 1e-9)) ticks.push(at);
    }
  return {
    of: (value) => (Math.log10(value) - a) / (b - a),
    ticks: ticks.map((at) => ({ at, text: short(at) })),
  };
}

const units = [
  [1e9, 'G'],
  [1e6, 'M'],
] as const;

const minus = (text: string) => text.replace(/^-/, /[1-9]/.test(text) ? '−' : '');
const trimmed = (text: string) => (text.includes('.') ? text.replace(/\.?0+(?=$|e)/, '') : text);

/** One format for all ticks of an axis, with just enough decimals to tell neighbours apart. */
function writerOf(ticks: readonly number[], { percent = false }: Axis): (value: number) => string {
  const largest = Math.max(0, ...ticks.map(Math.abs));
  const step = Math.min(...ticks.slice(1).map((tick, i) => tick - (ticks[i] as number)));
  if (!Number.isFinite(step)) return percent ? inPercent(2) : short;
  const fixed = (unit: number, sign: string) => {
    const decimals = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
    return (value: number) => (value === 0 && unit > 1 ? '0' : `${grouped((value / unit).toFixed(decimals))}${sign}`);
  };
  if (percent) return fixed(0.01, '%');
  if (largest < 1e-3 || largest >= 1e12) {
    const digits = Math.max(0, Math.floor(Math.log10(largest)) - Math.floor(Math.log10(step) + 1e-9));
    return (value) => scientific(value, Math.min(15, digits));
  }
  // If a unit would need more decimals, all digits are easier to read.
  for (const [unit, sign] of units) if (largest >= unit && step >= unit / 1000) return fixed(unit, sign);
  return fixed(1, '');
}

const scientific = (value: number, decimals: number) =>
  value === 0 ? '0' : minus(trimmed(value.toExponential(decimals)).replace('e+', 'e'));

const grouped = (digits: string) =>
  minus(digits.replace(/^(-?\d+)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ',')));

/** Formats with three significant digits: 0.123, 2.5M, 8e-7. Whole numbers below a million are in full: 1,234. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (value === 0) return '0';
  if (size >= 999.5e9 || size < 1e-3) return scientific(value, 2);
  if (size >= 999_500) {
    const [unit, sign] = size >= 999.5e6 ? [1e9, 'G'] : [1e6, 'M'];
    return minus(`${trimmed((value / unit).toPrecision(3))}${sign}`);
  }
  if (Number.isInteger(value) || size >= 999.5) return grouped(String(Math.round(value)));
  return minus(trimmed(value.toPrecision(3)));
}

/** Formats a share in percent with at most this many decimals. */
export const inPercent = (decimals: number) => (value: number) => `${minus(trimmed((100 * value).toFixed(decimals)))}%`;
