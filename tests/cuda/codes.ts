/** Keys and values in 8 bits, for the tests of such a cache. */
import { aten, type DType, integers, randn, type Tensor, zeros } from '../../src/tensor/index.ts';
import { hasCuda } from './device.ts';

export const dtypes: DType[] = hasCuda ? ['float32', 'bfloat16', 'float16'] : ['float32', 'bfloat16'];

/** Keys and values as an 8-bit cache holds them. */
export interface Codes {
  keys: Tensor;
  values: Tensor;
  keyScales: Tensor;
  valueScales: Tensor;
}
export const names = ['keys', 'values', 'keyScales', 'valueScales'] as const;
export const mapped = (codes: Codes, each: (tensor: Tensor) => Tensor) =>
  Object.fromEntries(names.map((name) => [name, each(codes[name])])) as unknown as Codes;

/** Random keys and values of so many blocks, as codes on the CPU. */
export function randomCodes(blocks: number, groups: number, size: number): Codes {
  const empty = (shape: number[], dtype: DType) => zeros(shape, { dtype });
  const codes: Codes = {
    keys: empty([blocks, 64, groups, size], 'int8'),
    values: empty([blocks, 64, groups, size], 'int8'),
    keyScales: empty([blocks, groups, 64], 'bfloat16'),
    valueScales: empty([blocks, groups, 64], 'bfloat16'),
  };
  const all = integers(Array.from({ length: blocks * 64 }, (_, i) => i));
  const rows = () => randn([blocks * 64, groups, size]);
  aten('attune::cache_write_', ...names.map((name) => codes[name]), all, rows(), rows());
  return codes;
}
/** The numbers that codes stand for. */
export const numbersOf = (codes: Tensor, scales: Tensor) =>
  codes.to('cpu').to('float32').mul(scales.to('cpu').transpose(1, 2).unsqueeze(-1));
