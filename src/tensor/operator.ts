/**
 * Any ATen operator by its name: `aten('add.Tensor', x, y)`. Keyword arguments come last, in a plain object:
 * `aten('sum.dim_IntList', x, [0], { keepdim: true })`. The operator's schema defines its arguments.
 */
import { suggestion } from '../errors.ts';
import { missingDevice } from './engine/cuda.ts';
import { TensorError } from './engine/error.ts';
import { Generator } from './engine/generator.ts';
import { isInternal, refuseInternal } from './engine/internals.ts';
import type { ArgumentInfo, OperatorInfo } from './engine/native.ts';
import { native } from './engine/native.ts';
import { DECLINED, NULL, outcome, writeCall } from './frame.ts';
import { Tensor } from './tensor.ts';

export { TensorError };

export interface Operator {
  readonly name: string;
  readonly id: number;
  readonly schema: string;
  /** Whether it can be called with plain arguments in the frame (frame.ts). */
  readonly direct: boolean;
  readonly arguments: readonly ArgumentInfo[];
  readonly returns: readonly { type: string; argument: number }[];
  /** The arguments that the operator writes to. */
  readonly written: readonly number[];
  /** The operator returns one new tensor, the most common case: its result is wrapped without reading `returns`. */
  readonly simple: boolean;
}

const known = new Map<string, Operator | null>();

/**
 * The operator, or null if this libtorch has none of that name. `add.Tensor` is short for `aten::add.Tensor`. Operators
 * that are internal to libtorch are refused (internals.ts).
 */
export function findOperator(name: string): Operator | null {
  const cached = known.get(name);
  if (cached !== undefined) return cached;
  const operator = internalOperator(name);
  if (operator !== null) refuseInternal(name);
  known.set(name, operator);
  return operator;
}

/** Any operator, internal ones included, for code in src/tensor that checks the arguments itself. */
export function internalOperator(name: string): Operator | null {
  if (typeof name !== 'string')
    throw new TensorError(String(name), `An operator is called by its name, not by ${kindOf(name)}.`);
  const full = name.includes('::') ? name : `aten::${name}`;
  const dot = full.indexOf('.');
  const found = native.resolve(dot < 0 ? full : full.slice(0, dot), dot < 0 ? '' : full.slice(dot + 1));
  return found === null ? null : { ...found, name, ...shapeOfResult(found) };
}

function shapeOfResult(found: OperatorInfo): { simple: boolean; written: number[] } {
  const written = found.arguments.flatMap((info, i) => (info.written ? [i] : []));
  return {
    written,
    simple:
      written.length === 0 &&
      found.returns.length === 1 &&
      found.returns[0]?.type === 'Tensor' &&
      found.returns[0].argument < 0,
  };
}

export function operator(name: string): Operator {
  const found = findOperator(name);
  if (found) return found;
  const base = name.replace(/^aten::/, '').split('.')[0] as string;
  const overloads = native
    .overloads(base.includes('::') ? base : `aten::${base}`)
    .map((full) => full.replace(/^aten::/, ''));
  if (overloads.length > 0)
    throw new TensorError(name, `There is no operator "${name}". Its overloads are: ${overloads.join(', ')}.`);
  const open = native.overloads('').filter((full) => !isInternal(full));
  const bases = new Set(open.map((full) => full.replace(/^aten::/, '').split('.')[0] ?? full));
  throw new TensorError(name, `There is no operator "${name}" in this libtorch.${suggestion(base, bases)}`);
}

/** Calls an operator with arguments by position. */
export function invoke(op: Operator, args: readonly unknown[]): unknown {
  if (!op.direct || !writeCall(op.id, args)) return invokeBoxed(op, args);
  let returned: unknown;
  try {
    returned = native.callDirect();
  } catch (error) {
    throw explain(op, args, error as Error);
  }
  const result = outcome();
  if (result >= 0) return new Tensor(result);
  if (result === NULL) return null;
  return result === DECLINED ? invokeBoxed(op, args) : unwrap(op, args, returned);
}

/** Calls an operator with arguments by position, of any kind. */
export function invokeBoxed(op: Operator, args: readonly unknown[]): unknown {
  const raw = rawArguments(op, args);
  let result: unknown;
  try {
    result = native.call(op.id, ...raw);
  } catch (error) {
    throw explain(op, args, error as Error);
  }
  if (op.simple) return result === null ? null : new Tensor(result as number);
  return unwrap(op, args, result);
}

/** Arguments as the addon takes them: handles for tensors, ids for generators. */
function rawArguments(op: Operator, args: readonly unknown[]): unknown[] {
  const count = args.length;
  const raw: unknown[] = new Array(count);
  const infos = op.arguments;
  for (let i = 0; i < count; i++) {
    const value = args[i];
    const info = infos[i];
    if (value instanceof Tensor) {
      if (info === undefined || !info.tensor || info.list) throw wrongKind(op, info, value);
      if (value.handle < 0)
        throw new TensorError(op.name, `${op.name}: argument "${info.name}" is a tensor that was already freed.`);
      raw[i] = value.handle;
    } else if (info?.tensor && value !== undefined && value !== null) {
      raw[i] =
        info.list && Array.isArray(value)
          ? value.map((item) => handleOf(op, info, item))
          : fail(wrongKind(op, info, value));
    } else if (value instanceof Generator) {
      raw[i] = info?.generator ? value.id : fail(wrongKind(op, info, value));
    } else if (info?.generator && value !== undefined && value !== null) {
      throw wrongKind(op, info, value);
    } else {
      raw[i] = value;
    }
  }
  return raw;
}

function handleOf(op: Operator, info: ArgumentInfo, item: unknown): number | null {
  if (item instanceof Tensor) {
    if (item.handle < 0)
      throw new TensorError(op.name, `${op.name}: "${info.name}" holds a tensor that was already freed.`);
    return item.handle;
  }
  if (item === null && info.type.includes('?')) return null;
  throw new TensorError(
    op.name,
    `${op.name}: "${info.name}" is a list of tensors (${info.type}); it holds ${kindOf(item)}.`,
  );
}

function unwrap(op: Operator, args: readonly unknown[], result: unknown): unknown {
  for (const index of op.written) {
    const target = args[index];
    if (target instanceof Tensor) target.forgetShape();
    else if (Array.isArray(target)) for (const item of target) (item as Tensor).forgetShape();
  }
  if (op.returns.length === 0) return undefined;
  if (op.returns.length === 1) return unwrapOne(op, 0, args, result);
  return (result as unknown[]).map((value, i) => unwrapOne(op, i, args, value));
}

function unwrapOne(op: Operator, i: number, args: readonly unknown[], value: unknown): unknown {
  const info = op.returns[i] as { type: string; argument: number };
  if (info.argument >= 0) return args[info.argument];
  return wrapByType(info.type, value);
}

function wrapByType(type: string, value: unknown): unknown {
  if (value === null || value === undefined) return value;
  if (type.startsWith('Tensor')) {
    return Array.isArray(value)
      ? value.map((item) => (item === null ? null : new Tensor(item as number)))
      : new Tensor(value as number);
  }
  if (type.startsWith('List[Tensor]') && Array.isArray(value)) return value.map((item) => new Tensor(item as number));
  return value;
}

function fail(error: Error): never {
  throw error;
}

function wrongKind(op: Operator, info: ArgumentInfo | undefined, value: unknown): TensorError {
  const wants = info ? `argument "${info.name}" is ${info.type}` : `it takes ${op.arguments.length} arguments`;
  return new TensorError(op.name, `${op.name}: ${wants}, got ${kindOf(value)}.\n  schema: ${op.schema}`);
}

function explain(op: Operator, args: readonly unknown[], error: Error): Error {
  if ((error as { code?: string }).code !== 'ATTUNE_NATIVE') return error;
  const given = args.map((value) => kindOf(value)).join(', ');
  const why = faultOfDevice(op, args) ?? error.message;
  return new TensorError(op.name, `${op.name}: ${why}\n  given: (${given})\n  schema: ${op.schema}`);
}

/** A message for a missing device: libtorch's own lists its backends instead. */
function faultOfDevice(op: Operator, args: readonly unknown[]): string | undefined {
  const devices = args.filter((value, i) => typeof value === 'string' && op.arguments[i]?.type.startsWith('Device'));
  return devices.map((device) => missingDevice(device as string)).find((fault) => fault !== undefined);
}

export function kindOf(value: unknown): string {
  if (value instanceof Tensor) return value.handle < 0 ? 'a freed tensor' : value.toString();
  if (Array.isArray(value)) {
    const shown = value.slice(0, 6).map(kindOf).join(', ');
    return `[${shown}${value.length > 6 ? `, … ${value.length} in all` : ''}]`;
  }
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'object' && value !== null) return value.constructor?.name ?? 'object';
  return typeof value === 'symbol' || typeof value === 'function' ? typeof value : String(value);
}

/** Calls an operator of libtorch, or one of ours (`attune::…`), by its name. `T` is what its schema returns. */
export function aten<T = Tensor>(name: string, ...args: unknown[]): T {
  return callOperator(operator(name), args) as T;
}

/** Calls an operator. Keyword arguments in a trailing plain object are put at their positions. */
export function callOperator(op: Operator, args: readonly unknown[]): unknown {
  const last = args.at(-1);
  if (!isPlainObject(last) || isComplex(last)) return invoke(op, args);
  const positional = args.slice(0, -1);
  for (const [key, value] of Object.entries(last)) {
    const index = op.arguments.findIndex((info) => info.name === key);
    if (index < 0) {
      const names = op.arguments.map((info) => info.name);
      throw new TensorError(
        op.name,
        `${op.name} has no argument "${key}".${suggestion(key, names)}\n  schema: ${op.schema}`,
      );
    }
    if (index < positional.length && positional[index] !== undefined)
      throw new TensorError(op.name, `${op.name}: argument "${key}" is given twice.`);
    positional[index] = value;
  }
  for (let i = 0; i < positional.length; i++) positional[i] ??= positional[i] === null ? null : undefined;
  return invoke(op, positional);
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

function isComplex(value: Record<string, unknown>): boolean {
  return 're' in value && 'im' in value;
}
