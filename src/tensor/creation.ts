/** New tensors: from JavaScript values, filled with constants or random numbers, and joined from other tensors. */
import './conversions.ts';
import { type Device, type DType, dtypeOfArray } from './engine/dtype.ts';
import { attempt, TensorError } from './engine/error.ts';
import { native } from './engine/native.ts';
import { aten } from './operator.ts';
import { Tensor } from './tensor.ts';

/** Where a new tensor lies and what its elements are; float32 on the CPU by default. */
export interface TensorOptions {
  dtype?: DType;
  device?: Device;
}

type Nested = number | boolean | bigint | readonly Nested[];

/**
 * A tensor from nested arrays, a number or a typed array (copied). Plain numbers become float32, booleans bool and bigints int64
 * unless `dtype` says otherwise; a typed array keeps its own type. `shape` gives a flat array its dimensions.
 */
export function tensor(
  data: Nested | ArrayBufferView,
  options: TensorOptions & { shape?: readonly number[] } = {},
): Tensor {
  if (ArrayBuffer.isView(data)) return fromView(data, options);
  const shape = options.shape ?? shapeOf(data);
  const flat = flatten(data);
  const first = flat[0];
  const natural: DType = typeof first === 'boolean' ? 'bool' : typeof first === 'bigint' ? 'int64' : 'float32';
  const dtype = options.dtype ?? natural;
  // int64 goes through BigInt64Array. Every other dtype goes through float64, which holds its values exactly.
  if (dtype === 'int64') {
    return finish(fromBytes(BigInt64Array.from(flat, wholeNumber), 'int64', shape), 'int64', 'int64', options);
  }
  const range = integerRanges[dtype];
  if (range !== undefined) for (const value of flat) checkInteger(value, dtype, range);
  return finish(fromBytes(Float64Array.from(flat, Number), 'float64', shape), 'float64', dtype, options);
}

/**
 * An int64 tensor (ids, row numbers, positions) from plain integers: an array, a typed array or any iterable.
 *
 *     integers([3, 1, 2]);
 *     integers(rows.map((row) => row.slot), { device: 'cuda:0' });
 */
export function integers(
  values: Iterable<number> | ArrayLike<number>,
  options: { device?: Device; shape?: readonly number[] } = {},
): Tensor {
  if (values instanceof Int32Array)
    return finish(fromBytes(values, 'int32', options.shape ?? [values.length]), 'int32', 'int64', options);
  const list = 'length' in values ? values : Array.from(values);
  // Each BigInt is an object of its own; conversion by libtorch takes a tenth of the time.
  const narrow = new Int32Array(list.length);
  for (let i = 0; i < narrow.length; i++) narrow[i] = list[i] as number;
  const shape = options.shape ?? [list.length];
  if (narrow.every((value, i) => value === list[i]))
    return finish(fromBytes(narrow, 'int32', shape), 'int32', 'int64', options);
  return finish(fromBytes(BigInt64Array.from(list, wholeNumber), 'int64', shape), 'int64', 'int64', options);
}

function fromBytes(view: ArrayBufferView, dtype: DType, shape: readonly number[]): number {
  return attempt('tensor', () => native.fromBytes(view, dtype, shape), [`${dtype}[${shape}]`]);
}

/** The ranges of the integer types: libtorch would keep the low bits of any other number (300 as uint8 is 44). */
const integerRanges: Partial<Record<DType, readonly [number, number]>> = {
  int32: [-(2 ** 31), 2 ** 31 - 1],
  int16: [-(2 ** 15), 2 ** 15 - 1],
  int8: [-128, 127],
  uint8: [0, 255],
  uint16: [0, 2 ** 16 - 1],
  uint32: [0, 2 ** 32 - 1],
};

function checkInteger(value: number | boolean | bigint, dtype: DType, [least, most]: readonly [number, number]): void {
  if (typeof value === 'number' && !Number.isInteger(value)) throw notInteger(value);
  if (Number(value) < least || Number(value) > most) throw outside(value, dtype, least, most);
}

function wholeNumber(value: number | boolean | bigint): bigint {
  if (typeof value === 'number' && !Number.isInteger(value)) throw notInteger(value);
  const whole = BigInt(value);
  if (BigInt.asIntN(64, whole) !== whole) throw outside(value, 'int64', '-2^63', '2^63 - 1');
  return whole;
}

const notInteger = (value: number) => new TensorError('tensor', `tensor(): ${value} is not an integer`);
const outside = (value: unknown, dtype: DType, least: number | string, most: number | string) =>
  new TensorError('tensor', `tensor(): ${value} is outside of what ${dtype} holds, ${least} to ${most}`);

function fromView(view: ArrayBufferView, options: TensorOptions & { shape?: readonly number[] }): Tensor {
  const own = dtypeOfView(view, options.dtype);
  const length = (view as unknown as ArrayLike<unknown>).length;
  return finish(fromBytes(plain(view), own, options.shape ?? [length]), own, options.dtype ?? own, options);
}

/** JavaScript has no bfloat16 or float8 array: their raw bits are in an unsigned one, as `data()` returns them. */
function dtypeOfView(view: ArrayBufferView, wanted: DType | undefined): DType {
  if (view instanceof Uint16Array) return wanted === 'uint16' ? 'uint16' : 'bfloat16';
  if (view instanceof Uint8Array && (wanted === 'bool' || wanted?.startsWith('float8'))) return wanted;
  return dtypeOfArray(view);
}

// Node-API does not know Float16Array yet, so its bytes are passed.
function plain(view: ArrayBufferView): ArrayBufferView {
  return view instanceof Float16Array ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : view;
}

/**
 * Moves and converts a tensor that was made on the CPU with dtype `own` to the dtype and device that the caller wants.
 */
function finish(handle: number, own: DType, dtype: DType, options: TensorOptions): Tensor {
  const made = new Tensor(handle);
  if (own === dtype && (options.device === undefined || options.device === 'cpu')) return made;
  // CUDA stages pageable memory before the call returns, so nobody has to wait for the device.
  const moved = made.to({ dtype, device: options.device ?? 'cpu', nonBlocking: true });
  made.dispose();
  return moved;
}

function shapeOf(data: Nested): number[] {
  const shape: number[] = [];
  for (let level: Nested = data; Array.isArray(level); level = level[0] as Nested) {
    shape.push(level.length);
    if (level.length === 0) break;
  }
  return shape;
}

function flatten(data: Nested): (number | boolean | bigint)[] {
  const out: (number | boolean | bigint)[] = [];
  const shape = shapeOf(data);
  const walk = (level: Nested, depth: number): void => {
    if (!Array.isArray(level)) {
      if (depth !== shape.length) throw new TensorError('tensor', 'tensor(): the nested arrays are ragged');
      if (typeof level !== 'number' && typeof level !== 'boolean' && typeof level !== 'bigint') {
        throw new TensorError('tensor', `tensor(): ${level === null ? 'null' : typeof level} is not a number`);
      }
      out.push(level);
      return;
    }
    if (level.length !== shape[depth]) throw new TensorError('tensor', 'tensor(): the nested arrays are ragged');
    for (const item of level) walk(item, depth + 1);
  };
  walk(data, 0);
  return out;
}

const made = (options: TensorOptions) => [options.dtype ?? 'float32', undefined, options.device ?? 'cpu'] as const;

/** A tensor of zeros. */
export function zeros(shape: readonly number[], options: TensorOptions = {}): Tensor {
  return aten('zeros', shape, ...made(options));
}

/** A tensor of ones. */
export function ones(shape: readonly number[], options: TensorOptions = {}): Tensor {
  return aten('ones', shape, ...made(options));
}

/** A tensor whose elements are not set: they hold whatever was in memory. Fill it before reading it. */
export function empty(shape: readonly number[], options: TensorOptions = {}): Tensor {
  return aten('empty.memory_format', shape, ...made(options));
}

/** A tensor with `value` in every element. */
export function full(shape: readonly number[], value: number, options: TensorOptions = {}): Tensor {
  return aten('full', shape, value, ...made(options));
}

/** Numbers from the standard normal distribution, drawn from the generator that `seed` sets. */
export function randn(shape: readonly number[], options: TensorOptions = {}): Tensor {
  return aten('randn', shape, ...made(options));
}

/** Numbers drawn uniformly from [0, 1). */
export function rand(shape: readonly number[], options: TensorOptions = {}): Tensor {
  return aten('rand', shape, ...made(options));
}

/** Integers drawn uniformly from [low, high), as int64. */
export function randint(low: number, high: number, shape: readonly number[], options: TensorOptions = {}): Tensor {
  return aten('randint.low', low, high, shape, options.dtype ?? 'int64', undefined, options.device ?? 'cpu');
}

/** The numbers start, start + step, … below `end`, as int64 by default. */
export function arange(start: number, end: number, step = 1, options: TensorOptions = {}): Tensor {
  return aten('arange.start_step', start, end, step, options.dtype ?? 'int64', undefined, options.device ?? 'cpu');
}

/** The identity matrix, [size, size]. */
export function eye(size: number, options: TensorOptions = {}): Tensor {
  return aten('eye', size, ...made(options));
}

/** Zeros with the shape, dtype and device of another tensor. */
export function zerosLike(other: Tensor): Tensor {
  return aten('zeros_like', other);
}

/** Joins tensors along an existing dimension. */
export function cat(tensors: readonly Tensor[], dim = 0): Tensor {
  return aten('cat', tensors, dim);
}

/** Joins tensors of one shape along a new dimension. */
export function stack(tensors: readonly Tensor[], dim = 0): Tensor {
  return aten('stack', tensors, dim);
}
/** `condition ? a : b`, element by element. */
export function where(condition: Tensor, a: Tensor | number, b: Tensor | number): Tensor {
  const overload =
    typeof a === 'number'
      ? typeof b === 'number'
        ? 'Scalar'
        : 'ScalarSelf'
      : typeof b === 'number'
        ? 'ScalarOther'
        : 'self';
  return aten(`where.${overload}`, condition, a, b);
}
