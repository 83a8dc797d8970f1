/**
 * Running out of memory, in words: what was being done, what it needed, what is free, and the options that would help most,
 * with what each saves by the memory plan.
 */
import { WorldError, WorldMistake } from '../dist/failure.ts';
import { AttuneError } from '../errors.ts';
import { type Device, freeBytes } from '../tensor/index.ts';

/** An option that makes a run smaller, and the memory that the run takes with it. */
export interface Remedy {
  /** As it is typed: `--gradient-checkpointing`. */
  option: string;
  totalBytes: number;
}

export interface MemoryNeeds {
  totalBytes: number;
  device: Device;
  remedies: readonly Remedy[];
}

/** libtorch's words on a GPU and on a CPU, and the C++ library's. */
const words = /out of memory|can't allocate memory|cannot allocate memory|bad_alloc|not enough memory/i;

/** Whether this process ran out of memory: not what has been explained already, nor another rank's words. */
export const isOutOfMemory = (error: unknown): error is Error =>
  error instanceof Error &&
  ![OutOfMemory, WorldError, WorldMistake].some((known) => error instanceof known) &&
  words.test(error.message);

/** An out-of-memory error that has been explained. */
export class OutOfMemory extends AttuneError {
  override name = 'OutOfMemory';
}

/** `doing`: "training a step", "loading the model". */
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

/** "Tried to allocate 2.00 GiB", "you tried to allocate 123456 bytes". */
function askedBytes(message: string): number | undefined {
  return bytesIn(/tried to allocate ([\d.]+) ?(bytes|[kmgt]ib|b)\b/i.exec(message));
}

/** What the error says is free, else what the machine says now; of a GPU only the error tells. */
function freeIn(device: Device, message: string): number | undefined {
  const said = bytesIn(/([\d.]+) ?(bytes|[kmgt]ib|b) (?:is )?free/i.exec(message));
  if (said !== undefined) return said;
  return device === 'cpu' ? freeBytes(device) : undefined;
}

const bytesIn = (found: RegExpExecArray | null) =>
  found === null ? undefined : Number(found[1]) * (units[(found[2] as string).toLowerCase()] as number);

const size = (bytes: number) =>
  bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;
