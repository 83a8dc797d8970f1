/** Numbers for people: three significant digits and a unit; the exact value belongs into a tooltip. */

/** 0.123456 → 0.123, 12345 → 12,300, 2.1e-6 → 2.1e-6, −0.5 with a true minus sign. */
export function short(value: number | null | undefined): string {
  if (value === undefined || value === null || Number.isNaN(value)) return '–';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e9)
    return minus(
      value
        .toExponential(2)
        .replace(/\.?0+e/, 'e')
        .replace('e+', 'e'),
    );
  const rounded = Number(value.toPrecision(3));
  if (Math.abs(rounded) < 10_000) return minus(String(rounded));
  return minus(grouped(String(rounded)));
}

/** Steps, rows and tokens: whole numbers are written whole. */
export function count(value: number | null | undefined): string {
  if (value === undefined || value === null || Number.isNaN(value)) return '–';
  return Number.isInteger(value) ? minus(grouped(String(value))) : short(value);
}

/** 0.954 → 95.4 %, and whole percents without a decimal. */
export function percent(share: number | null | undefined): string {
  if (share === undefined || share === null || Number.isNaN(share)) return '–';
  const value = 100 * share;
  const digits = Math.abs(value) >= 99.95 || Math.abs(value) < 0.05 ? 0 : Math.abs(value) < 10 ? 2 : 1;
  return `${minus(String(Number(value.toFixed(digits))))} %`;
}

/** Every digit, for hovering. */
export function exact(value: number | null | undefined): string {
  return value === undefined || value === null ? 'not recorded' : minus(String(value));
}

const sizes = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(value: number | null | undefined): string {
  if (value === undefined || value === null) return '–';
  let unit = 0;
  let rest = value;
  while (rest >= 1000 && unit < sizes.length - 1) {
    rest /= 1024;
    unit++;
  }
  return `${unit === 0 ? rest : short(rest)} ${sizes[unit]}`;
}

/** 75 → 1 min 15 s; the two largest units are enough. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === undefined || seconds === null || !Number.isFinite(seconds)) return '–';
  if (seconds < 1) return `${short(seconds * 1000)} ms`;
  if (seconds < 60) return `${short(seconds)} s`;
  const whole = Math.round(seconds);
  const parts: [number, string][] = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(' ');
}

/** "4 min ago". `now` is a parameter for tests. */
export function ago(time: string | number | null | undefined, now = Date.now()): string {
  if (time === undefined || time === null) return '–';
  const seconds = Math.max(0, (now - new Date(time).getTime()) / 1000);
  if (!Number.isFinite(seconds)) return '–';
  if (seconds < 45) return 'just now';
  const units: [number, string, string][] = [
    [86_400 * 365, 'year', 'years'],
    [86_400 * 30, 'month', 'months'],
    [86_400, 'day', 'days'],
    [3600, 'h', 'h'],
    [60, 'min', 'min'],
  ];
  const [size, one, more] = units.find(([each]) => seconds >= 0.95 * each) ?? [60, 'min', 'min'];
  const amount = Math.max(1, Math.round(seconds / size));
  return `${amount} ${amount === 1 ? one : more} ago`;
}

/** The point of time in full, in the reader's own zone, for hovering. */
export function moment(time: string | number | null | undefined): string {
  if (time === undefined || time === null) return '';
  const date = new Date(time);
  return Number.isNaN(date.getTime())
    ? ''
    : date.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

/** Thin spaces would be lost when copied; commas are read everywhere. */
const grouped = (digits: string) => digits.replace(/\B(?=(\d{3})+$)/g, ',');
const minus = (text: string) => text.replaceAll('-', '−').replace('e−', 'e-');
