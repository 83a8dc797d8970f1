/** What console.log prints for a tensor: dtype, shape, device and values, with the middle of long dimensions left out. */
import './conversions.ts';
import './methods.ts';
import { Tensor } from './tensor.ts';

const EDGE = 3;
const SMALL = 200;

function formatTensor(tensor: Tensor): string {
  if (tensor.isFreed) return 'Tensor (freed)';
  const head = `Tensor ${tensor}${tensor.requiresGrad ? ', requires grad' : ''}`;
  if (tensor.device === 'meta' || tensor.numel === 0) return head;
  const whole = tensor.numel <= SMALL;
  return `${head}\n${block(tensor, whole, 0)}`;
}

function block(tensor: Tensor, whole: boolean, depth: number): string {
  if (tensor.ndim === 0) return element(tensor.tolist(), tensor.dtype);
  const size = tensor.size(0);
  const cut = !whole && size > 2 * EDGE;
  if (tensor.ndim === 1) {
    const cells = cut ? [...row(tensor, 0, EDGE), '…', ...row(tensor, size - EDGE, EDGE)] : elements(tensor);
    const width = Math.max(...cells.map((cell) => cell.length));
    return `[${cells.map((cell) => (cell === '…' ? cell : cell.padStart(width))).join(', ')}]`;
  }
  const picked = cut ? [...range(0, EDGE), -1, ...range(size - EDGE, size)] : range(0, size);
  const rows = picked.map((i) => {
    if (i < 0) return '…';
    using part = tensor.select(0, i);
    return block(part, whole, depth + 1);
  });
  return `[${rows.join(`,\n${' '.repeat(depth + 1)}`)}]`;
}

function row(tensor: Tensor, start: number, length: number): string[] {
  using part = tensor.narrow(0, start, length);
  return elements(part);
}

function elements(tensor: Tensor): string[] {
  return (tensor.tolist() as unknown[]).map((value) => element(value, tensor.dtype));
}

function range(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, i) => start + i);
}

function element(value: unknown, dtype: string): string {
  if (typeof value === 'number') return number(value, dtype);
  const { re, im } = value as { re: number; im: number };
  return `${number(re, 'float')}${im < 0 ? '-' : '+'}${number(Math.abs(im), 'float')}i`;
}

function number(value: number, dtype: string): string {
  if (dtype === 'bool') return value ? 'true' : 'false';
  if (Number.isInteger(value) && !dtype.startsWith('float') && !dtype.startsWith('bfloat')) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(3) : value.toFixed(4);
}

Object.assign(Tensor.prototype, {
  [Symbol.for('nodejs.util.inspect.custom')](this: Tensor): string {
    return formatTensor(this);
  },
});
