/** Methods of Tensor that turn it into another dtype, another device, or plain JavaScript values. */
import { type Device, type DType, dtypeBytes, isDevice } from './engine/dtype.ts';
import { TensorError } from './engine/error.ts';
import { aten } from './operator.ts';
import { Tensor } from './tensor.ts';

/** What `Tensor.to` changes; an omitted field stays as it is. */
export interface ConversionTarget {
  dtype?: DType;
  device?: Device;
  nonBlocking?: boolean;
  copy?: boolean;
}

function named(target: string): ConversionTarget {
  if (isDevice(target)) return { device: target };
  if (target in dtypeBytes) return { dtype: target as DType };
  throw new TensorError('to', `to: "${target}" is neither a dtype nor a device (cpu, cuda, cuda:N).`);
}

const conversions = {
  /**
   * Converts to another dtype or device. If nothing changes, the result shares this tensor's memory, unless `copy` is
   * set.
   */
  to(this: Tensor, target: DType | Device | ConversionTarget): Tensor {
    const wanted = typeof target === 'string' ? named(target) : target;
    const { dtype = this.dtype, device = this.device, nonBlocking = false, copy = false } = wanted;
    return aten('to.dtype_layout', this, dtype, undefined, device, undefined, nonBlocking, copy);
  },
  cpu(this: Tensor): Tensor {
    return this.to('cpu');
  },
  /** All elements as plain numbers, copied. A complex element gives two: its real and its imaginary part. */
  numbers(this: Tensor): number[] {
    const source = this.dtype === 'bfloat16' || this.dtype.startsWith('float8') ? this.to('float32') : this;
    const values = Array.from(source.data() as ArrayLike<number | bigint>, Number);
    if (source !== this) source.dispose();
    return values;
  },
  /** Nested arrays in the tensor's shape; complex elements as {re, im}. */
  tolist(this: Tensor): unknown {
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
  },
};

type Conversions = typeof conversions;
declare module './tensor.ts' {
  interface Tensor extends Conversions {}
}
Object.assign(Tensor.prototype, conversions);
