/**
 * A tensor: a handle on libtorch's own, with the operators in use as typed methods and all others through `aten`.
 * Methods return new tensors; those that change their tensor end in an underscore.
 *
 *     const x = randn([4, 8]).requiresGrad_();
 *     x.matmul(w).relu().sum().backward();
 *     x.grad;
 */
import { type Device, type DType, type TypedArray, viewOf } from './engine/dtype.ts';
import { attempt, TensorError } from './engine/error.ts';
import { adopt, type Disposable, dispose } from './engine/lifetime.ts';
import { native } from './engine/native.ts';
import { formatTensor } from './format.ts';
import { type Index, index } from './indexing.ts';
import { type Methods, methods } from './methods.ts';
import { aten } from './operator.ts';

// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the methods are assigned to the prototype below
export class Tensor implements Disposable {
  /** @internal */
  handle: number;
  /** @internal */
  scopeDepth = 0;
  #meta: { dtype: DType; device: Device; shape: readonly number[] } | undefined;

  /** @internal Tensors come from `tensor`, `zeros` and the like, and from operators. */
  constructor(handle: number) {
    this.handle = handle;
    adopt(this);
  }

  // —— what it is ——————————————————————————————————————————————————————————————————
  get #info(): { dtype: DType; device: Device; shape: readonly number[] } {
    if (this.#meta === undefined || this.handle < 0) {
      const [dtype, device, ...shape] = native.meta(this.live('reading its shape'));
      // an empty tensor may have sizes beyond 2⁵³, which come as bigints
      this.#meta = { dtype: dtype as DType, device, shape: Object.freeze(shape.map(Number)) };
    }
    return this.#meta;
  }
  get shape(): readonly number[] {
    return this.#info.shape;
  }
  get dtype(): DType {
    return this.#info.dtype;
  }
  get device(): Device {
    return this.#info.device;
  }
  get ndim(): number {
    return this.shape.length;
  }
  get numel(): number {
    return this.shape.reduce((product, size) => product * size, 1);
  }
  /** The length of one dimension; negative counts from the last. */
  size(dim: number): number {
    const size = this.shape.at(dim);
    if (size === undefined) throw new TensorError('size', `there is no dimension ${dim} in ${this}`);
    return size;
  }
  get isFreed(): boolean {
    return this.handle < 0;
  }
  /** @internal In-place operators may have changed it. */
  forgetShape(): void {
    this.#meta = undefined;
  }
  /** @internal The handle, or a clear error after it was freed. */
  live(doing: string): number {
    if (this.handle < 0)
      throw new TensorError(
        doing,
        `This tensor was already freed (${doing}). Keep it with keep(), or return it from its scope().`,
      );
    return this.handle;
  }

  dispose(): void {
    dispose(this);
  }
  [Symbol.dispose](): void {
    dispose(this);
  }

  // —— reading it ——————————————————————————————————————————————————————————————————
  /** The one value of a one-element tensor. */
  item(): number {
    if (this.numel !== 1) throw new TensorError('item', `item() wants one element; this is ${this}`);
    const value = attempt('item', () => native.item(this.live('item')), [this]);
    if (typeof value === 'object')
      throw new TensorError('item', `item() gives a number; this is ${this}. tolist() gives {re, im}.`);
    return Number(value);
  }
  /** A copy of all elements in row order (bfloat16 as raw bits; see `numbers`). */
  data(): TypedArray {
    return viewOf(
      attempt('data', () => native.bytesOf(this.live('reading its data')), [this]),
      this.dtype,
    );
  }
  /** A copy of all elements as plain numbers; a complex one gives two, its parts. */
  numbers(): number[] {
    const source = this.dtype === 'bfloat16' || this.dtype.startsWith('float8') ? this.to('float32') : this;
    const values = Array.from(source.data() as ArrayLike<number | bigint>, Number);
    if (source !== this) source.dispose();
    return values;
  }
  /** Nested arrays in the tensor's shape; complex elements as {re, im}. */
  tolist(): unknown {
    const parts = this.numbers();
    const complex = this.dtype.startsWith('complex');
    const flat = complex
      ? Array.from({ length: this.numel }, (_, i) => ({ re: parts[2 * i], im: parts[2 * i + 1] }))
      : parts;
    const build = (depth: number, offset: number, stride: number): unknown => {
      const size = this.shape[depth];
      if (size === undefined) return flat[offset];
      const inner = size === 0 ? 0 : stride / size;
      return Array.from({ length: size }, (_, i) => build(depth + 1, offset + i * inner, inner));
    };
    return build(0, 0, flat.length);
  }
  toString(): string {
    return this.handle < 0
      ? 'freed tensor'
      : `${this.dtype}[${this.shape.join(', ')}]${this.device === 'cpu' ? '' : ` on ${this.device}`}`;
  }
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return formatTensor(this);
  }

  // —— autograd —————————————————————————————————————————————————————————————————————
  get requiresGrad(): boolean {
    return native.requiresGrad(this.live('requiresGrad'));
  }
  requiresGrad_(value = true): this {
    attempt('requiresGrad_', () => native.setRequiresGrad(this.live('requiresGrad_'), value), [this]);
    return this;
  }
  get isLeaf(): boolean {
    return native.isLeaf(this.live('isLeaf'));
  }
  /** What backward has gathered here, or null. */
  get grad(): Tensor | null {
    const handle = native.gradOf(this.live('grad'));
    return handle === null ? null : new Tensor(handle);
  }
  set grad(value: Tensor | null) {
    attempt('grad', () => native.setGrad(this.live('grad'), value === null ? null : value.live('grad')), [this, value]);
  }
  retainGrad(): this {
    attempt('retainGrad', () => native.retainGrad(this.live('retainGrad')), [this]);
    return this;
  }
  backward(gradient?: Tensor, options: { retainGraph?: boolean } = {}): void {
    const incoming = gradient === undefined ? null : [gradient.live('backward')];
    const retain = options.retainGraph ?? false;
    attempt(
      'backward',
      () => native.backward([this.live('backward')], incoming, retain),
      gradient ? [this, gradient] : [this],
    );
  }

  // —— dtype and device ——————————————————————————————————————————————————————————————
  /** To another dtype and/or device; itself (a new handle) where nothing changes. */
  to(target: DType | Device | { dtype?: DType; device?: Device; nonBlocking?: boolean; copy?: boolean }): Tensor {
    const wanted =
      typeof target === 'string' ? (isDevice(target) ? { device: target } : { dtype: target as DType }) : target;
    const { nonBlocking = false, copy = false } = wanted as { nonBlocking?: boolean; copy?: boolean };
    return aten(
      'to.dtype_layout',
      this,
      wanted.dtype ?? this.dtype,
      undefined,
      wanted.device ?? this.device,
      undefined,
      nonBlocking,
      copy,
    );
  }
  cpu(): Tensor {
    return this.to('cpu');
  }

  // —— methods that need more than a schema; the others are in methods.ts ————————————————————
  /** `x.at(0)`, `x.at([1, 3])` (a slice), `x.at('...', -1)`, `x.at(null)`, `x.at(indexTensor)`; one entry per dimension. */
  at(...indices: Index[]): Tensor {
    return index(this, indices);
  }
  view(...shape: number[]): Tensor {
    return aten('view', this, shape);
  }
  reshape(...shape: number[]): Tensor {
    return aten('reshape', this, shape);
  }
  expand(...shape: number[]): Tensor {
    return aten('expand', this, shape);
  }
  permute(...order: number[]): Tensor {
    return aten('permute', this, order);
  }
  /** One dimension into several. */
  unflatten(dim: number, sizes: readonly number[]): Tensor {
    const at = dim < 0 ? dim + this.ndim : dim;
    return this.reshape(...this.shape.slice(0, at), ...sizes, ...this.shape.slice(at + 1));
  }
  split(size: number | readonly number[], dim = 0): Tensor[] {
    return typeof size === 'number' ? aten('split.Tensor', this, size, dim) : aten('split_with_sizes', this, size, dim);
  }
  sum(dim?: number | readonly number[], keepdim = false): Tensor {
    return dim === undefined ? aten('sum', this) : aten('sum.dim_IntList', this, dim, keepdim);
  }
  mean(dim?: number | readonly number[], keepdim = false): Tensor {
    return dim === undefined ? aten('mean', this) : aten('mean.dim', this, dim, keepdim);
  }
  /** Unbiased, as everywhere in this project. */
  std(dim?: number, keepdim = false): Tensor {
    return dim === undefined ? aten('std', this, true) : aten('std.dim', this, dim, true, keepdim);
  }
}

export interface Tensor extends Methods {}
Object.assign(Tensor.prototype, methods(Tensor));

export function isDevice(name: string): boolean {
  return /^(cpu|cuda|meta)(:\d+)?$/.test(name);
}
