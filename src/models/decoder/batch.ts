/**
 * A packed batch: sequences laid end to end, no padding anywhere. Tokens reach a model in no other form.
 *
 *     const batch = packSequences([[1, 2, 3], [4, 5]]);   // ids [5], positions 0 1 2 0 1, starts [0, 3, 5]
 *     packShared([{ ids, promptLength: 12 }, …]);         // a prompt that several share goes through the model once
 */
import { checkArgument, integer, list, type Rule } from '../../arguments.ts';
import { AttuneError, UserError } from '../../errors.ts';
import { type Device, embedding, integers, type Tensor, tensor } from '../../tensor/index.ts';

/** Sequences laid end to end without padding, as tensors: the input of a decoder. */
export interface PackedBatch {
  /** [total], int64. */
  ids: Tensor;
  /** Each token's position in its own sequence, counting the shared prefix; [total], int64. */
  positions: Tensor;
  /** Where each sequence begins, and the total at the end: n + 1 numbers. */
  starts: readonly number[];
  /** `starts` on the device as int32, for the flash kernels; absent on the CPU. */
  cuSeqlens?: Tensor;
  /** Where the sequences and their prefixes are, for our CUDA kernels; absent on the CPU. */
  places?: SequencePlaces;
  /** Tokens of the longest sequence, including its shared prefix. */
  longest: number;
  /** Per sequence, the index of the sequence that is its prefix, or −1. A prefix has no prefix itself. */
  prefixes?: readonly number[];
  /** Where `packShared` put each token of its sequences; absent if no prompt is shared. */
  rows?: Int32Array;
}

/** The description of a batch for `attune::causal_attention` (native/ops/training/causal_attention.cc). */
export interface SequencePlaces {
  /** One row per sequence, those with the most keys first: [sequences, 4], int32. */
  sequences: Tensor;
  /** One row per sequence that others continue: [families, 3], int32; null if there is none. */
  families: Tensor | null;
  /** Tokens of the sequences that others continue. */
  prefixTokens: number;
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
    checkTokens(sequence);
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

const numbers = list(integer);
/** Token ids. The trainers' own arrays hold nothing else and are not scanned. */
export const tokenIds: Rule = {
  fits: (value) => value instanceof Int32Array || numbers.fits(value),
  wanted: numbers.wanted,
};

function checkTokens(sequence: ArrayLike<number>): void {
  checkArgument('A sequence', sequence, tokenIds);
  if (sequence.length === 0) throw new UserError('A sequence without tokens cannot go through a model.');
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
  if (device !== 'cpu') {
    batch.cuSeqlens = tensor(Int32Array.from(starts), { device });
    batch.places = sequencePlaces(starts, device, prefixes);
  }
  return batch;
}

/** In the order that a GPU finishes soonest. Sequences that continue another must come after it. */
export function sequencePlaces(
  starts: readonly number[],
  device: Device,
  prefixes?: readonly number[],
): SequencePlaces {
  const sequences = starts.slice(0, -1).map((start, s) => {
    const length = (starts[s + 1] as number) - start;
    return { start, length, prefixStart: start, prefixLength: 0, familyTokens: length };
  });
  for (const [s, prefix] of prefixes?.entries() ?? []) {
    const own = sequences[s] as (typeof sequences)[number];
    const before = sequences[prefix];
    if (before === undefined) continue;
    if (before.start + before.familyTokens !== own.start)
      throw new AttuneError('A family of sequences does not lie together.');
    own.prefixStart = before.start;
    own.prefixLength = before.length;
    before.familyTokens += own.length;
  }
  const keysOf = ({ prefixLength, length }: (typeof sequences)[number]) => prefixLength + length;
  sequences.sort((a, b) => keysOf(b) - keysOf(a));
  const families = sequences.filter(({ length, familyTokens }) => familyTokens > length);
  families.sort((a, b) => b.familyTokens - a.familyTokens);
  for (const prefix of families) prefix.prefixLength = -1;
  const table = (rows: number[][]) =>
    tensor(Int32Array.from(rows.flat()), { shape: [rows.length, rows[0]?.length ?? 4], device });
  return {
    sequences: table(sequences.map((row) => [row.start, row.length, row.prefixStart, row.prefixLength])),
    families: families.length === 0 ? null : table(families.map((row) => [row.start, row.length, row.familyTokens])),
    prefixTokens: families.reduce((sum, { length }) => sum + length, 0),
  };
}

/** The shortest prefix, in tokens, that is worth a sequence of its own. */
const worthSharing = 8;

/** Where a decoder computes, and its limit for sharing prompts. */
export interface Sharing {
  device: Device;
  /** The longest sequence whose prompt may be shared, in tokens; 0 if none may. */
  longestShared: number;
}

const onCpu: Sharing = { device: 'cpu', longestShared: Number.POSITIVE_INFINITY };

/** How many tokens of a prompt can be shared: all of them, or none. */
export function sharedLength({ ids, promptLength }: PromptedSequence, { longestShared }: Sharing): number {
  const length = Math.min(promptLength, ids.length);
  return length < worthSharing || ids.length > longestShared ? 0 : length;
}

/** Equal for sequences with the same prompt; unique for a sequence that has nothing to share. */
export function sharedKey(sequence: PromptedSequence, sharing: Sharing): string | symbol {
  const shared = sharedLength(sequence, sharing);
  if (shared === 0) return Symbol('alone');
  const { buffer, byteOffset, BYTES_PER_ELEMENT: bytes } = sequence.ids;
  return Buffer.from(buffer, byteOffset, shared * bytes).toString('latin1');
}

/**
 * Packs sequences so that a shared prompt goes through the model once; attention sums the gradients of all that
 * continue it. Sequences with the same prompt lie together, in the place of the first of them.
 */
export function packShared(sequences: readonly PromptedSequence[], sharing = onCpu): PackedBatch {
  const { device } = sharing;
  const groups = new Map<string | symbol, number[]>();
  for (const [i, sequence] of sequences.entries()) {
    checkTokens(sequence.ids);
    const key = sharedKey(sequence, sharing);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [i]);
    else group.push(i);
  }
  if (groups.size === sequences.length)
    return packSequences(
      sequences.map(({ ids }) => ids),
      device,
    );
  const parts: Int32Array[] = [];
  const prefixes: number[] = [];
  let total = 0;
  /** Returns the row of its first token. A response without tokens has no rows of its own. */
  const lay = (ids: Int32Array, prefix: number) => {
    const row = total;
    if (ids.length === 0) return row;
    parts.push(ids);
    prefixes.push(prefix);
    total += ids.length;
    return row;
  };
  const firstOf = startsOf(sequences);
  const rows = new Int32Array(firstOf.at(-1) as number);
  for (const group of groups.values()) {
    const first = sequences[group[0] as number] as PromptedSequence;
    const shared = group.length === 1 ? 0 : sharedLength(first, sharing);
    const prefix = shared === 0 ? -1 : parts.length;
    const prefixRow = shared === 0 ? total : lay(first.ids.subarray(0, shared), -1);
    for (const i of group) {
      const { ids } = sequences[i] as PromptedSequence;
      const row = lay(ids.subarray(shared), prefix);
      for (let at = 0; at < ids.length; at++)
        rows[(firstOf[i] as number) + at] = at < shared ? prefixRow + at : row + at - shared;
    }
  }
  return { ...packSequences(parts, device, prefixes), rows };
}

/**
 * The rows of `hidden` that predict the tokens at the packed positions `tokens`: for each token, the row before it. The
 * first token after a shared prompt is predicted by the prompt's last row, so several responses read that row.
 */
export function rowsBefore(hidden: Tensor, { starts, prefixes }: PackedBatch, tokens: ArrayLike<number>): Tensor {
  const { device } = hidden;
  const before = Int32Array.from(tokens, (token) => token - 1);
  if (prefixes === undefined) return hidden.indexSelect(0, integers(before, { device }));
  const firsts = new Map(
    prefixes.flatMap((prefix, s) => (prefix < 0 ? [] : [[starts[s] as number, (starts[prefix + 1] as number) - 1]])),
  );
  for (let i = 0; i < before.length; i++) before[i] = firsts.get(tokens[i] as number) ?? (before[i] as number);
  // Sums a row's gradients in a fixed order, which index_select does not do on CUDA.
  return embedding(hidden, integers(before, { device }));
}

/** Where each sequence begins when they lie end to end, and their total at the end. */
function startsOf(sequences: readonly PromptedSequence[]): number[] {
  const starts = [0];
  for (const { ids } of sequences) starts.push((starts.at(-1) as number) + ids.length);
  return starts;
}
