/**
 * A packed batch: sequences laid end to end, no padding anywhere. The one form in which tokens reach a model.
 *
 *     const batch = packSequences([[1, 2, 3], [4, 5]]);   // ids [5], positions 0 1 2 0 1, starts [0, 3, 5]
 */
import { UserError } from '../errors.ts';
import { type Device, type Tensor, tensor } from '../tensor/index.ts';

export interface PackedBatch {
  /** [total], int64. */
  ids: Tensor;
  /** Each token's place in its own sequence, [total], int64. */
  positions: Tensor;
  /** Where each sequence begins, and the total at the end: n + 1 numbers. */
  starts: readonly number[];
  /** The same on the device as int32, for the flash kernels; absent on the CPU. */
  cuSeqlens?: Tensor;
  longest: number;
}

export function packSequences(sequences: readonly ArrayLike<number>[], device: Device = 'cpu'): PackedBatch {
  const starts = [0];
  let total = 0;
  for (const sequence of sequences) {
    if (sequence.length === 0) throw new UserError('A sequence without tokens cannot go through a model.');
    total += sequence.length;
    starts.push(total);
  }
  const ids = new BigInt64Array(total);
  let at = 0;
  for (const sequence of sequences) for (let i = 0; i < sequence.length; i++) ids[at++] = BigInt(sequence[i] as number);
  return packedBatch(ids, starts, device);
}

/** From ids that already lie end to end. */
export function packedBatch(ids: BigInt64Array, starts: readonly number[], device: Device = 'cpu'): PackedBatch {
  const positions = new BigInt64Array(ids.length);
  let longest = 0;
  for (let s = 0; s + 1 < starts.length; s++) {
    const start = starts[s] as number;
    const end = starts[s + 1] as number;
    longest = Math.max(longest, end - start);
    for (let i = start; i < end; i++) positions[i] = BigInt(i - start);
  }
  const batch: PackedBatch = {
    ids: tensor(ids, { device }),
    positions: tensor(positions, { device }),
    starts,
    longest,
  };
  if (device !== 'cpu') batch.cuSeqlens = tensor(Int32Array.from(starts), { device });
  return batch;
}
