/** Reads Parquet some thousand rows at a time, decoded in a separate process with limits on memory and time. */
import { type ChildProcess, fork } from 'node:child_process';
import { on } from 'node:events';
import { fileURLToPath } from 'node:url';
import { UserError } from '../../errors.ts';
import { regularFileSize } from './bytes.ts';
import type { ParquetMessage } from './parquet-process.ts';
import type { BadRow, LocatedRow } from './row.ts';

export interface ParquetLimits {
  /** Most seconds for one slice of rows. */
  seconds?: number;
  /** Heap of the decoder process. */
  megabytes?: number;
}

// The sources are TypeScript, the published package is JavaScript.
const program = new URL(`./parquet-process${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);

export async function* readParquet(
  path: string,
  _bad?: BadRow,
  limits: ParquetLimits = {},
): AsyncGenerator<LocatedRow> {
  const megabytesOnDisk = (await regularFileSize(path)) / 2 ** 20;
  // A valid file needs time and memory in proportion to its size, and is larger in memory than on disk.
  const { seconds = 20 + megabytesOnDisk, megabytes = Math.min(4096, 256 + 64 * megabytesOnDisk) } = limits;
  const decoder = fork(fileURLToPath(program), [path], {
    execArgv: [`--max-old-space-size=${Math.ceil(megabytes)}`],
    serialization: 'advanced',
    // Hides Node's output when memory runs out.
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

/** If the decoder has ended, waiting for its next message reports it. */
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
