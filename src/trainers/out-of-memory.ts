/**
 * Explains running out of memory: what was being done, what it needed, what is free, and the options that would save
 * most, with the saving of each by the memory plan.
 */
import { WorldError, WorldMistake } from '../dist/failure.ts';
import { AttuneError } from '../errors.ts';
import { type Device, freeBytes } from '../tensor/index.ts';

/** An option that reduces a run's memory, and the memory that the run needs with it. */
export interface Remedy {
  /** As typed: `--gradient-checkpointing`. */
  option: string;
  totalBytes: number;
}

export interface MemoryNeeds {
  totalBytes: number;
  device: Device;
  remedies: readonly Remedy[];
}

/** The messages of libtorch on a GPU and on a CPU, and of the C++ library. */
const words = /out of memory|can't allocate memory|cannot allocate memory|bad_alloc|not enough memory/i;

/** Whether this process ran out of memory. False for errors already explained, and for those of other ranks. */
export const isOutOfMemory = (error: unknown): error is Error =>
  error instanceof Error &&
  ![OutOfMemory, WorldError, WorldMistake].some((known) => error instanceof known) &&
  words.test(error.message);

/** An out-of-memory error that has been explained. */
export class OutOfMemory extends AttuneError {
  override name = 'OutOfMemory';
}

/** `doing` is a phrase such as "training a step" or "loading the model". */
export function explainOutOfMemory(error: Error, doing: string, needs?: MemoryNeeds): OutOfMemory {
  const asked = askedBytes(error.message);
  const free = freeIn(needs?.device ?? 'cpu', error.message);
  const where = needs === undefined || needs.device === 'cpu' ? "this machine's memory" : needs.device;
  const wanted = asked === undefined ? 'it asked for more than there is' : `it asked for ${size(asked)} more`;
  const left = free === undefined ? '' : `, and ${size(free)} of ${where} are free`;
  const lines = [`There was not enough memory for ${doing}: ${wanted}${left}.`];
  if (needs !== undefined) {
    lines.push(`By the memory plan the run takes about ${size(needs.totalBytes)} in all. What would help most:`);
    const best = needs.remedies
      .filter(({ totalBytes }) => totalBytes < needs.totalBytes)
      .sort((a, b) => a.totalBytes - b.totalBytes)
      .slice(0, 3);
    for (const { option, totalBytes } of best)
      lines.push(`  ${option}: about ${size(totalBytes)}, ${size(needs.totalBytes - totalBytes)} less`);
  }
  return new OutOfMemory(lines.join('\n'), { cause: error });
}

const units: Record<string, number> = { b: 1, bytes: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };

/** Parses "Tried to allocate 2.00 GiB" and "you tried to allocate 123456 bytes". */
function askedBytes(message: string): number | undefined {
  return bytesIn(/tried to allocate ([\d.]+) ?(bytes|[kmgt]ib|b)\b/i.exec(message));
}

/** The free memory that the error states, or else what the machine reports. For a GPU only the error knows it. */
function freeIn(device: Device, message: string): number | undefined {
  const said = bytesIn(/([\d.]+) ?(bytes|[kmgt]ib|b) (?:is )?free/i.exec(message));
  if (said !== undefined) return said;
  return device === 'cpu' ? freeBytes(device) : undefined;
}

const bytesIn = (found: RegExpExecArray | null) =>
  found === null ? undefined : Number(found[1]) * (units[(found[2] as string).toLowerCase()] as number);

const size = (bytes: number) =>
  bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;
