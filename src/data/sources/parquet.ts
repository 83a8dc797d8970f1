/** Parquet, some thousand rows at a time, decoded in a process of its own with bounds on memory and time. */
import { type ChildProcess, fork } from 'node:child_process';
import { on } from 'node:events';
import { fileURLToPath } from 'node:url';
import { UserError } from '../../errors.ts';
import { regularFileSize } from './bytes.ts';
import type { ParquetMessage } from './parquet-process.ts';
import type { BadRow, LocatedRow } from './row.ts';

export interface ParquetLimits {
  /** How long one slice of rows may take. */
  seconds?: number;
  /** Heap of the decoder. */
  megabytes?: number;
}

// Sources run as they are; the package holds JavaScript.
const program = new URL(`./parquet-process${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);

export async function* readParquet(
  path: string,
  _bad?: BadRow,
  limits: ParquetLimits = {},
): AsyncGenerator<LocatedRow> {
  const megabytesOnDisk = (await regularFileSize(path)) / 2 ** 20;
  // What a sound file needs grows with its size; strings and numbers are larger in memory than on disk.
  const { seconds = 20 + megabytesOnDisk, megabytes = Math.min(4096, 256 + 64 * megabytesOnDisk) } = limits;
  const decoder = fork(fileURLToPath(program), [path], {
    execArgv: [`--max-old-space-size=${Math.ceil(megabytes)}`],
    serialization: 'advanced',
    // What Node prints when the memory is used up is not for the console.
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const messages = on(decoder, 'message', { close: ['exit'] }) as AsyncIterableIterator<[ParquetMessage]>;
  try {
    ask(decoder);
    for (;;) {
      ask(decoder);
      const message = await nextMessage(messages, seconds);
      if ('done' in message) return;
      if ('fault' in message) throw damaged(path, message.fault);
      for (const [i, row] of message.rows.entries()) yield { row, file: path, line: message.start + i + 1 };
    }
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw damaged(path, (error as Error).message);
  } finally {
    decoder.kill('SIGKILL');
  }
}

/** A decoder that has ended is noticed when its next message does not come. */
function ask(decoder: ChildProcess): void {
  if (decoder.connected) decoder.send('next', () => {});
}

async function nextMessage(messages: AsyncIterator<[ParquetMessage]>, seconds: number): Promise<ParquetMessage> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no rows within ${Math.ceil(seconds)} s`)), seconds * 1000);
  });
  try {
    const next = await Promise.race([messages.next(), late]);
    if (next.done) throw new Error('decoding it took more memory than any sound file of its size');
    return next.value[0];
  } finally {
    clearTimeout(timer);
  }
}

function damaged(path: string, problem: string): UserError {
  return new UserError(`${path}: not a readable parquet file (${problem}). Fetch the file again.`);
}
