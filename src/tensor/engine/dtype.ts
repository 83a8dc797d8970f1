/** Element types and devices, by their PyTorch names. */
import { TensorError } from './error.ts';

/** The type of a tensor's elements, by its PyTorch name. */
export type DType =
  | 'float32'
  | 'float64'
  | 'float16'
  | 'bfloat16'
  | 'int64'
  | 'int32'
  | 'int16'
  | 'int8'
  | 'uint8'
  | 'bool'
  | 'complex64'
  | 'complex128'
  // libtorch 2.1 and later
  | 'float8_e4m3fn'
  | 'float8_e5m2'
  // libtorch 2.3 and later
  | 'uint16'
  | 'uint32'
  | 'uint64';

/** Where a tensor lies: `cpu`, `cuda` (the first GPU), `cuda:1`. */
export type Device = string;

/** Bytes per element of each dtype. */
export const dtypeBytes: Readonly<Record<DType, number>> = {
  float32: 4,
  float64: 8,
  float16: 2,
  bfloat16: 2,
  int64: 8,
  int32: 4,
  int16: 2,
  int8: 1,
  uint8: 1,
  bool: 1,
  complex64: 8,
  complex128: 16,
  float8_e4m3fn: 1,
  float8_e5m2: 1,
  uint16: 2,
  uint32: 4,
  uint64: 8,
};

/** Whether a string names a device rather than a dtype. */
export function isDevice(name: string): boolean {
  return /^(cpu|cuda|meta)(:\d+)?$/.test(name);
}

/** Whether a dtype is a floating-point one: only tensors of those have gradients. */
export function isFloating(dtype: DType): boolean {
  return dtype === 'float32' || dtype === 'bfloat16' || dtype === 'float16' || dtype === 'float64';
}

/**
 * What `Tensor.data` returns. bfloat16 and float8 have no JavaScript array: their raw bits come as Uint16Array and
 * Uint8Array.
 */
export type TypedArray =
  | Float32Array
  | Float64Array
  | Float16Array
  | Uint16Array
  | BigInt64Array
  | BigUint64Array
  | Uint32Array
  | Int32Array
  | Int16Array
  | Int8Array
  | Uint8Array;

/** The typed array over a buffer of elements of this dtype. */
export function viewOf(buffer: ArrayBuffer, dtype: DType): TypedArray {
  switch (dtype) {
    case 'float32':
    case 'complex64':
      return new Float32Array(buffer);
    case 'float64':
    case 'complex128':
      return new Float64Array(buffer);
    case 'float16':
      return new Float16Array(buffer);
    case 'bfloat16':
    case 'uint16':
      return new Uint16Array(buffer);
    case 'uint32':
      return new Uint32Array(buffer);
    case 'uint64':
      return new BigUint64Array(buffer);
    case 'int64':
      return new BigInt64Array(buffer);
    case 'int32':
      return new Int32Array(buffer);
    case 'int16':
      return new Int16Array(buffer);
    case 'int8':
      return new Int8Array(buffer);
    default:
      return new Uint8Array(buffer);
  }
}

/** The dtype that corresponds to a typed array's own type. */
export function dtypeOfArray(array: ArrayBufferView): DType {
  if (array instanceof Float32Array) return 'float32';
  if (array instanceof Float64Array) return 'float64';
  if (array instanceof Float16Array) return 'float16';
  if (array instanceof BigInt64Array) return 'int64';
  if (array instanceof Int32Array) return 'int32';
  if (array instanceof Int16Array) return 'int16';
  if (array instanceof Int8Array) return 'int8';
  if (array instanceof Uint8Array) return 'uint8';
  if (array instanceof Uint32Array) return 'uint32';
  if (array instanceof BigUint64Array) return 'uint64';
  throw new TensorError(
    'tensor',
    `tensor(): ${array.constructor.name} has no dtype of its own; copy it into another typed array`,
  );
}
