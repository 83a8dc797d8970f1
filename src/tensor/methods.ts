/**
 * Operators as methods of Tensor, mostly one line each: the operator's name and the types of its further arguments. An
 * omitted argument takes the schema's default. To add an operator, add a line.
 */
import type { DType } from './engine/dtype.ts';
import { aten, invoke, type Operator, operator } from './operator.ts';
import { Tensor } from './tensor.ts';

/** A number that an operator takes instead of a tensor. */
export type Scalar = number | bigint | boolean;
/** The other side of a binary operator: a tensor or a number. */
export type Operand = Tensor | Scalar;
export type Dims = number | readonly number[];

/** A method that passes its arguments on to one operator. */
function method<Arguments extends unknown[] = [], Result = Tensor>(name: string): (...args: Arguments) => Result {
  let op: Operator | undefined;
  return function (this: Tensor, ...args: Arguments): Result {
    op ??= operator(name);
    return invoke(op, [this, ...args]) as Result;
  };
}

/** `name.Tensor` for a tensor operand and `name.Scalar` for a number. */
function binary(name: string, tensorOverload = 'Tensor', scalarOverload = 'Scalar'): (other: Operand) => Tensor {
  let withTensor: Operator | undefined;
  let withScalar: Operator | undefined;
  return function (this: Tensor, other: Operand): Tensor {
    if (other instanceof Tensor) {
      withTensor ??= operator(`${name}.${tensorOverload}`);
      return invoke(withTensor, [this, other]) as Tensor;
    }
    withScalar ??= operator(`${name}.${scalarOverload}`);
    return invoke(withScalar, [this, other]) as Tensor;
  };
}

const methods = {
  // arithmetic and comparison
  add: binary('add'),
  sub: binary('sub'),
  mul: binary('mul'),
  div: binary('div'),
  pow: binary('pow', 'Tensor_Tensor', 'Tensor_Scalar'),
  remainder: binary('remainder'),
  eq: binary('eq'),
  ne: binary('ne'),
  lt: binary('lt'),
  le: binary('le'),
  gt: binary('gt'),
  ge: binary('ge'),
  minimum: method<[other: Tensor]>('minimum'),
  maximum: method<[other: Tensor]>('maximum'),
  matmul: method<[other: Tensor]>('matmul'),
  neg: method('neg'),
  abs: method('abs'),
  exp: method('exp'),
  expm1: method('expm1'),
  log: method('log'),
  log1p: method('log1p'),
  sqrt: method('sqrt'),
  rsqrt: method('rsqrt'),
  square: method('square'),
  sign: method('sign'),
  sin: method('sin'),
  cos: method('cos'),
  tanh: method('tanh'),
  sigmoid: method('sigmoid'),
  logSigmoid: method('log_sigmoid'),
  relu: method('relu'),
  silu: method('silu'),
  gelu: method<[approximate?: 'none' | 'tanh']>('gelu'),
  clamp: method<[min?: number | null, max?: number | null]>('clamp'),
  logicalNot: method('logical_not'),
  logicalAnd: method<[other: Tensor]>('logical_and'),
  logicalOr: method<[other: Tensor]>('logical_or'),
  isfinite: method('isfinite'),
  softmax: method<[dim: number, dtype?: DType]>('softmax.int'),
  logSoftmax: method<[dim: number, dtype?: DType]>('log_softmax.int'),

  // reductions
  max: method('max'),
  min: method('min'),
  amax: method<[dim: Dims, keepdim?: boolean]>('amax'),
  amin: method<[dim: Dims, keepdim?: boolean]>('amin'),
  argmax: method<[dim?: number, keepdim?: boolean]>('argmax'),
  logsumexp: method<[dim: Dims, keepdim?: boolean]>('logsumexp'),
  cumsum: method<[dim: number]>('cumsum'),
  /** The Euclidean norm of all elements. */
  norm: method('linalg_vector_norm'),
  all: method('all'),
  any: method('any'),

  // shape
  contiguous: method('contiguous'),
  clone: method('clone'),
  detach: method('detach'),
  /** A copy in page-locked memory, from which a copy to CUDA need not block. */
  pinMemory: method('pin_memory'),
  flatten: method<[start?: number, end?: number]>('flatten.using_ints'),
  transpose: method<[a: number, b: number]>('transpose.int'),
  t: method('t'),
  unsqueeze: method<[dim: number]>('unsqueeze'),
  squeeze: method<[dim: number]>('squeeze.dim'),
  repeatInterleave: method<[count: number, dim: number]>('repeat_interleave.self_int'),
  chunk: method<[count: number, dim?: number], Tensor[]>('chunk'),
  unbind: method<[dim?: number], Tensor[]>('unbind.int'),

  // gathering and selecting
  select: method<[dim: number, index: number]>('select.int'),
  narrow: method<[dim: number, start: number, length: number]>('narrow'),
  slice: method<[dim: number, start?: number, end?: number, step?: number]>('slice.Tensor'),
  gather: method<[dim: number, index: Tensor]>('gather'),
  indexSelect: method<[dim: number, index: Tensor]>('index_select'),
  maskedFill: method<[mask: Tensor, value: number]>('masked_fill.Scalar'),
  maskedSelect: method<[mask: Tensor]>('masked_select'),
  tril: method<[diagonal?: number]>('tril'),
  triu: method<[diagonal?: number]>('triu'),
  topk: method<[k: number, dim?: number, largest?: boolean, sorted?: boolean], [Tensor, Tensor]>('topk'),
  sort: method<[dim?: number, descending?: boolean], [Tensor, Tensor]>('sort'),
  nonzero: method('nonzero'),

  // in place
  add_: binary('add_'),
  sub_: binary('sub_'),
  mul_: binary('mul_'),
  div_: binary('div_'),
  copy_: method<[source: Tensor, nonBlocking?: boolean]>('copy_'),
  fill_: method<[value: number]>('fill_.Scalar'),
  zero_: method('zero_'),
  clamp_: method<[min?: number | null, max?: number | null]>('clamp_'),
  lerp_: method<[end: Tensor, weight: number]>('lerp_.Scalar'),
  /** self += value · a · b */
  addcmul_: method<[a: Tensor, b: Tensor, value?: number]>('addcmul_'),
  /** self += value · a / b */
  addcdiv_: method<[a: Tensor, b: Tensor, value?: number]>('addcdiv_'),
  normal_: method<[mean?: number, std?: number]>('normal_'),
  uniform_: method<[from?: number, to?: number]>('uniform_'),
  indexCopy_: method<[dim: number, index: Tensor, source: Tensor]>('index_copy_'),
  indexAdd_: method<[dim: number, index: Tensor, source: Tensor]>('index_add_'),
  scatter_: method<[dim: number, index: Tensor, source: Tensor]>('scatter_.src'),
  maskedFill_: method<[mask: Tensor, value: number]>('masked_fill_.Scalar'),

  // methods that take a shape as several numbers, and operators whose overload depends on the arguments
  view(this: Tensor, ...shape: number[]): Tensor {
    return aten('view', this, shape);
  },
  reshape(this: Tensor, ...shape: number[]): Tensor {
    return aten('reshape', this, shape);
  },
  expand(this: Tensor, ...shape: number[]): Tensor {
    return aten('expand', this, shape);
  },
  permute(this: Tensor, ...order: number[]): Tensor {
    return aten('permute', this, order);
  },
  /** Splits one dimension into several. */
  unflatten(this: Tensor, dim: number, sizes: readonly number[]): Tensor {
    const at = dim < 0 ? dim + this.ndim : dim;
    return this.reshape(...this.shape.slice(0, at), ...sizes, ...this.shape.slice(at + 1));
  },
  split(this: Tensor, size: number | readonly number[], dim = 0): Tensor[] {
    return typeof size === 'number' ? aten('split.Tensor', this, size, dim) : aten('split_with_sizes', this, size, dim);
  },
  sum(this: Tensor, dim?: Dims, keepdim = false): Tensor {
    return dim === undefined ? aten('sum', this) : aten('sum.dim_IntList', this, dim, keepdim);
  },
  mean(this: Tensor, dim?: Dims, keepdim = false): Tensor {
    return dim === undefined ? aten('mean', this) : aten('mean.dim', this, dim, keepdim);
  },
  /** The standard deviation with n − 1 in the denominator. */
  std(this: Tensor, dim?: number, keepdim = false): Tensor {
    return dim === undefined ? aten('std', this, true) : aten('std.dim', this, dim, true, keepdim);
  },
};

type Methods = typeof methods;
declare module './tensor.ts' {
  interface Tensor extends Methods {}
}
Object.assign(Tensor.prototype, methods);
