/**
 * The Tensor class: a handle on a libtorch tensor. This file has what needs no operator. methods.ts, conversions.ts,
 * indexing.ts and format.ts add their methods to the class, so that no two files import each other; index.ts loads them
 * all. Methods return new tensors; methods that change their tensor end in an underscore.
 *
 *     const x = randn([4, 8]).requiresGrad_();
 *     x.matmul(w).relu().sum().backward();
 *     x.grad;
 */
import { type Device, type DType, type TypedArray, viewOf } from './engine/dtype.ts';
import { attempt, TensorError } from './engine/error.ts';
import { adopt, type Disposable, dispose } from './engine/lifetime.ts';
import { native } from './engine/native.ts';

/** An n-dimensional array of libtorch on the CPU or a GPU, with its operators as methods and its gradient in `grad`. */
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
  /** @internal Drops the cached shape, which an in-place operator may have changed. */
  forgetShape(): void {
    this.#meta = undefined;
  }
  /** @internal The handle; throws a clear error if it was freed. */
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
  toString(): string {
    return this.handle < 0
      ? 'freed tensor'
      : `${this.dtype}[${this.shape.join(', ')}]${this.device === 'cpu' ? '' : ` on ${this.device}`}`;
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
  /** The gradient accumulated by backward, or null. */
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
}
