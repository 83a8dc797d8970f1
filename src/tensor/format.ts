/** What console.log shows: dtype, shape, device, and the values with the middle of long dimensions left out. */
import type { Tensor } from './tensor.ts';

const EDGE = 3;
const SMALL = 200;

export function formatTensor(tensor: Tensor): string {
  if (tensor.isFreed) return 'Tensor (freed)';
  const head = `Tensor ${tensor}${tensor.requiresGrad ? ', requires grad' : ''}`;
  if (tensor.device === 'meta' || tensor.numel === 0) return head;
  const whole = tensor.numel <= SMALL;
  return `${head}\n${block(tensor, whole, 0)}`;
}

function block(tensor: Tensor, whole: boolean, depth: number): string {
  if (tensor.ndim === 0) return number(tensor.item(), tensor.dtype);
  const size = tensor.size(0);
  const picked = whole || size <= 2 * EDGE ? range(0, size) : [...range(0, EDGE), -1, ...range(size - EDGE, size)];
  if (tensor.ndim === 1) {
    const values = tensor.numbers();
    const cells = picked.map((i) => (i < 0 ? '…' : number(values[i] as number, tensor.dtype)));
    const width = Math.max(...cells.map((cell) => cell.length));
    return `[${cells.map((cell) => (cell === '…' ? cell : cell.padStart(width))).join(', ')}]`;
  }
  const rows = picked.map((i) => {
    if (i < 0) return '…';
    using row = tensor.select(0, i);
    return block(row, whole, depth + 1);
  });
  return `[${rows.join(`,\n${' '.repeat(depth + 1)}`)}]`;
}

function range(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, i) => start + i);
}

function number(value: number, dtype: string): string {
  if (dtype === 'bool') return value ? 'true' : 'false';
  if (Number.isInteger(value) && !dtype.startsWith('float') && !dtype.startsWith('bfloat')) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(3) : value.toFixed(4);
}
