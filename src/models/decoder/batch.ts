/**
 * A packed batch: sequences laid end to end, no padding anywhere. The one form in which tokens reach a model.
 *
 *     const batch = packSequences([[1, 2, 3], [4, 5]]);   // ids [5], positions 0 1 2 0 1, starts [0, 3, 5]
 *     packShared([{ ids, promptLength: 12 }, …]);         // a prompt that several share goes through the model once
 */
import { UserError } from '../../errors.ts';
import { type Device, integers, type Tensor, tensor } from '../../tensor/index.ts';

/** Sequences laid end to end without padding, as tensors: the input of a decoder. */
export interface PackedBatch {
  /** [total], int64. */
  ids: Tensor;
  /** Each token's position in its own sequence, the shared prefix included; [total], int64. */
  positions: Tensor;
  /** Where each sequence begins, and the total at the end: n + 1 numbers. */
  starts: readonly number[];
  /** `starts` on the device as int32, for the flash kernels; absent on the CPU. */
  cuSeqlens?: Tensor;
  /** First token and length of each sequence, longest first: [sequences, 2], int32. Absent on the CPU and with prefixes. */
  sequences?: Tensor;
  /** Tokens of the longest sequence, its shared prefix included. */
  longest: number;
  /** Per sequence, the index of the sequence that is its prefix, or −1. A prefix has no prefix itself. */
  prefixes?: readonly number[];
  /** Where `packShared` put each token of its sequences; absent where no prompt is shared. */
  rows?: Int32Array;
}

/** Token ids of which the first `promptLength` are the prompt. */
export interface PromptedSequence {
  ids: Int32Array;
  promptLength: number;
}

/** Packs sequences of token ids into one batch. */
export function packSequences(
  sequences: readonly ArrayLike<number>[],
  device: Device = 'cpu',
  prefixes?: readonly number[],
): PackedBatch {
  const starts = [0];
  let total = 0;
  for (const sequence of sequences) {
    if (sequence.length === 0) throw new UserError('A sequence without tokens cannot go through a model.');
    total += sequence.length;
    starts.push(total);
  }
  const ids = sequences.every((sequence) => sequence instanceof Int32Array)
    ? new Int32Array(total)
    : new Float64Array(total);
  let at = 0;
  for (const sequence of sequences) {
    ids.set(sequence, at);
    at += sequence.length;
  }
  return packedBatch(ids, starts, device, prefixes);
}

/** A batch from ids that already lie end to end. */
export function packedBatch(
  ids: ArrayLike<number>,
  starts: readonly number[],
  device: Device = 'cpu',
  prefixes?: readonly number[],
): PackedBatch {
  const positions = new Int32Array(ids.length);
  let longest = 0;
  for (let s = 0; s + 1 < starts.length; s++) {
    const start = starts[s] as number;
    const end = starts[s + 1] as number;
    const prefix = prefixes?.[s] ?? -1;
    const before = prefix < 0 ? 0 : (starts[prefix + 1] as number) - (starts[prefix] as number);
    longest = Math.max(longest, before + end - start);
    for (let i = start; i < end; i++) positions[i] = before + i - start;
  }
  const batch: PackedBatch = {
    ids: integers(ids, { device }),
    positions: integers(positions, { device }),
    starts,
    longest,
    ...(prefixes === undefined ? {} : { prefixes }),
  };
  if (device !== 'cpu') batch.cuSeqlens = tensor(Int32Array.from(starts), { device });
  if (device !== 'cpu' && prefixes === undefined) batch.sequences = longestFirst(starts, device);
  return batch;
}

/** First token and length of each sequence, in the order in which a GPU finishes them soonest: [sequences, 2], int32. */
export function longestFirst(starts: readonly number[], device: Device): Tensor {
  const sequences = starts.slice(0, -1).map((start, s) => [start, (starts[s + 1] as number) - start] as const);
  sequences.sort(([, a], [, b]) => b - a);
  return tensor(Int32Array.from(sequences.flat()), { shape: [sequences.length, 2], device });
}

/** The shortest prefix that is worth a sequence of its own, in tokens. */
const worthSharing = 8;

/**
 * How many tokens of a prompt can be shared: all but the last. Every sequence keeps the prompt's last token, because the row
 * of that token predicts the first token of the response.
 */
export function sharedLength({ ids, promptLength }: PromptedSequence): number {
  const length = Math.min(promptLength, ids.length) - 1;
  return length < worthSharing ? 0 : length;
}

/** Equal for sequences with the same prompt; unique for a sequence that has nothing to share. */
export function sharedKey(sequence: PromptedSequence): string | symbol {
  const shared = sharedLength(sequence);
  return shared === 0 ? Symbol('alone') : sequence.ids.subarray(0, shared + 1).join();
}

/**
 * Packs sequences so that a prompt which several of them share goes through the model once; attention adds up the gradients
 * of all that continue it. For decoders with `sharesPrefixes`.
 */
export function packShared(sequences: readonly PromptedSequence[], device: Device = 'cpu'): PackedBatch {
  const keys = sequences.map(sharedKey);
  const users = new Map<string | symbol, number>();
  for (const key of keys) users.set(key, (users.get(key) ?? 0) + 1);
  const parts: Int32Array[] = [];
  const prefixes: number[] = [];
  const rows = new Int32Array(sequences.reduce((sum, { ids }) => sum + ids.length, 0));
  let written = 0;
  const laid = new Map<string | symbol, { part: number; row: number }>();
  let total = 0;
  const lay = (ids: Int32Array, prefix: number) => {
    const place = { part: parts.push(ids) - 1, row: total };
    prefixes.push(prefix);
    total += ids.length;
    return place;
  };
  for (const [i, sequence] of sequences.entries()) {
    const key = keys[i] as string | symbol;
    const shared = users.get(key) === 1 ? 0 : sharedLength(sequence);
    if (shared > 0 && !laid.has(key)) laid.set(key, lay(sequence.ids.subarray(0, shared), -1));
    const prefix = laid.get(key);
    const { row } = lay(sequence.ids.subarray(shared), prefix?.part ?? -1);
    for (let at = 0; at < sequence.ids.length; at++)
      rows[written++] = at < shared ? (prefix?.row as number) + at : row + at - shared;
  }
  if (laid.size === 0) return packSequences(parts, device);
  return { ...packSequences(parts, device, prefixes), rows };
}
