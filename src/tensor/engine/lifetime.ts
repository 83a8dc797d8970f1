/**
 * How tensors are freed. `scope` frees everything made inside it except what it returns. `using` and `dispose` free one
 * tensor. Garbage collection is the safety net for tensors made outside any scope.
 *
 *     const loss = scope(() => model.forward(batch).mean());   // all intermediate tensors are freed
 */
import { AttuneError } from '../../errors.ts';
import { native } from './native.ts';

export interface Disposable {
  /** The native handle; −1 once freed. */
  handle: number;
  scopeDepth: number;
}

/** Depth 0 is outside all scopes; KEPT marks a tensor that no scope frees. */
const KEPT = -1;
const scopes: Disposable[][] = [];

const finalizer = new FinalizationRegistry<number>((handle) => native.free(handle));
let unreported = 0;

/** Puts a new tensor into the innermost scope or, outside all scopes, leaves it to garbage collection. */
export function adopt(tensor: Disposable): void {
  const depth = scopes.length;
  tensor.scopeDepth = depth;
  if (depth > 0) {
    (scopes[depth - 1] as Disposable[]).push(tensor);
    return;
  }
  watch(tensor);
}

// The garbage collector is told of native bytes every 64 tensors: a call per tensor would cost as much as a small
// operator.
function watch(tensor: Disposable): void {
  finalizer.register(tensor, tensor.handle, tensor);
  if (++unreported >= 64) {
    unreported = 0;
    native.reportBytes();
  }
}

export function dispose(tensor: Disposable): void {
  if (tensor.handle < 0) return;
  if (tensor.scopeDepth <= 0) finalizer.unregister(tensor);
  native.free(tensor.handle);
  tensor.handle = -1;
}

/** Takes a tensor out of every scope and returns it: it lives until it is disposed of or garbage-collected. */
export function keep<T extends Disposable>(tensor: T): T {
  if (tensor.scopeDepth > 0) {
    tensor.scopeDepth = KEPT;
    watch(tensor);
  }
  return tensor;
}

/** Runs `body` and frees every tensor made in it, except those in its return value and those marked with `keep`. */
export function scope<T>(body: () => T): T {
  const made: Disposable[] = [];
  scopes.push(made);
  const depth = scopes.length;
  let result: T | undefined;
  const survivors = new Set<Disposable>();
  try {
    result = body();
    if (result instanceof Promise) {
      result.catch(() => {});
      throw new AttuneError(
        'scope() takes a synchronous function: what runs after an await is outside it. Use scopes between the awaits.',
      );
    }
    collect(result, survivors, 0);
  } finally {
    scopes.length = depth - 1;
    release(made, depth, survivors);
    for (const tensor of survivors) if (tensor.handle >= 0 && tensor.scopeDepth === depth) adopt(tensor);
  }
  return result as T;
}

/** Each scope that ends refills it. It is kept, because making a typed array costs as much as a small operator. */
let handles = new Float64Array(1024);

function release(made: Disposable[], depth: number, survivors: Set<Disposable>): void {
  if (made.length > handles.length) handles = new Float64Array(2 * made.length);
  let count = 0;
  for (const tensor of made) {
    // moved out by keep(), already freed, or returned
    if (tensor.scopeDepth !== depth || tensor.handle < 0 || (survivors.size > 0 && survivors.has(tensor))) continue;
    handles[count++] = tensor.handle;
    tensor.handle = -1;
  }
  if (count > 0) native.freeAll(handles, count);
}

/**
 * Collects the tensors in a returned value: the value itself, members of arrays, Maps and Sets, fields of plain
 * objects.
 */
function collect(value: unknown, into: Set<Disposable>, depth: number): void {
  if (value === null || typeof value !== 'object' || depth > 8) return;
  if (isDisposable(value)) {
    into.add(value);
  } else if (Array.isArray(value)) {
    for (const item of value) collect(item, into, depth + 1);
  } else if (value instanceof Map || value instanceof Set) {
    for (const item of value.values()) collect(item, into, depth + 1);
  } else if (!ArrayBuffer.isView(value)) {
    for (const item of Object.values(value)) collect(item, into, depth + 1);
  }
}

function isDisposable(value: object): value is Disposable {
  return 'handle' in value && 'scopeDepth' in value;
}

/** How many tensors JavaScript holds now: a leak shows here. */
export function liveTensors(): number {
  return native.liveCount();
}

/** Bytes of the memory behind all live tensors; memory that several of them share counts once. */
export function liveBytes(): number {
  return native.liveSize();
}
