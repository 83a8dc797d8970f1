/**
 * Gradients in flat buckets, one per block of the model: a collective over one long tensor costs far less than one per
 * parameter. Sums are made in f32.
 */
import { aten, cat, type Device, type DType, empty, keep, noGrad, scope, type Tensor, zeros } from '../tensor/index.ts';

export interface Slice {
  name: string;
  parameter: Tensor;
  /** The place of the parameter's first element in the bucket. */
  start: number;
  size: number;
}

export interface Bucket {
  slices: readonly Slice[];
  /** Elements, rounded up so that every rank's part is equal. */
  length: number;
  device: Device;
  dtype: DType;
  /** The number of the policy's block; null for parameters outside blocks: embedding, head, critic. */
  block: number | null;
}

/** `model.layers.7.mlp.up_proj.weight` belongs to block 7; parameters outside blocks share one bucket. */
const blockOf = (name: string) => /(?:^|\.)(?:layers|h|blocks|block|layer)\.(\d+)\./.exec(name);

/**
 * From this many elements on, a parameter outside blocks (an embedding, a head) is a bucket by itself: its gradient is
 * then sent without a copy.
 */
const large = 1 << 20;

/** The buckets of named parameters, in their order. Lengths are multiples of `parts`. */
export function bucketsOf(parameters: Iterable<readonly [string, Tensor]>, parts: number): Bucket[] {
  const groups = Map.groupBy(parameters, ([name, { device, dtype, numel }]) => {
    const block = blockOf(name)?.[0] ?? (numel >= large && numel % parts === 0 ? name : '');
    return `${device} ${dtype} ${prefixOf(name)}${block}`;
  });
  return [...groups.values()].map((group) => {
    let length = 0;
    const slices = group.map(([name, parameter]): Slice => {
      const start = length;
      length += parameter.numel;
      return { name, parameter, start, size: parameter.numel };
    });
    const [name, { device, dtype }] = group[0] as readonly [string, Tensor];
    const block = prefixOf(name) === '' ? Number(blockOf(name)?.[1] ?? Number.NaN) : Number.NaN;
    return {
      slices,
      device,
      dtype,
      block: Number.isNaN(block) ? null : block,
      length: Math.ceil(length / parts) * parts,
    };
  });
}

/** A critic's blocks are not the policy's. */
const prefixOf = (name: string) => (name.startsWith('value_backbone.') ? 'value ' : '');

/**
 * The bucket's gradients end to end in f32; zeros for a parameter without one. The caller frees it. For a single
 * parameter it may be the gradient itself, so the caller must remove the gradients from their parameters.
 */
export function flattened({ slices, length, device }: Bucket): Tensor {
  return scope(() =>
    noGrad(() => {
      const options = { dtype: 'float32', device } as const;
      const parts = slices.map(({ parameter, size }) => {
        const { grad } = parameter;
        return grad === null ? zeros([size], options) : grad.reshape(-1).to('float32');
      });
      const used = slices.reduce((sum, { size }) => sum + size, 0);
      if (used < length) parts.push(zeros([length - used], options));
      return keep(parts.length === 1 ? (parts[0] as Tensor) : cat(parts, 0));
    }),
  );
}

/** Gives each parameter its part of the flat tensor as gradient, except parameters without a gradient on every rank. */
export function setGradients({ slices }: Bucket, flat: Tensor, hasGradient: (name: string) => boolean): void {
  scope(() =>
    noGrad(() => {
      for (const { name, parameter, start, size } of slices) {
        if (!hasGradient(name)) continue;
        const part = flat.narrow(0, start, size).reshape(...parameter.shape);
        parameter.grad = part.to(parameter.dtype);
      }
    }),
  );
}

export const emptyLike = (flat: Tensor, length = flat.numel): Tensor =>
  keep(empty([length], { dtype: flat.dtype, device: flat.device }));

/** The same memory as bytes: c10d's Gloo in 1.13 does not support bf16, and moving data needs no dtype. */
export const bytesOf = (values: Tensor): Tensor => scope(() => keep(aten<Tensor>('view.dtype', values, 'uint8')));
