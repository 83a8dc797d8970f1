/** The console of a run: the end of its train.log, and what is added to it. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import type { ConsoleAnswer } from '../api/runs.ts';

const mostBytes = 1 << 20;

export function consoleOf(path: string, lines = 200): ConsoleAnswer {
  const { text, start } = endOf(path, mostBytes);
  const all = text.split('\n').filter((line) => line !== '');
  // A piece that begins inside the file may begin inside a line.
  const whole = start > 0 ? all.slice(1) : all;
  return { lines: whole.slice(-lines), truncated: start > 0 || whole.length > lines };
}

function endOf(path: string, most: number): { text: string; start: number } {
  return (
    reading(path, (file, size) => {
      const start = Math.max(0, size - most);
      const bytes = Buffer.alloc(size - start);
      readSync(file, bytes, 0, bytes.length, start);
      return { text: bytes.toString('utf8'), start };
    }) ?? { text: '', start: 0 }
  );
}

/** Whole lines that were added since the last call. */
export class Follower {
  readonly #path: string;
  #at: number;

  /** From the file's end, or from its beginning. */
  constructor(path: string, from: 'end' | 'start' = 'end') {
    this.#path = path;
    this.#at = from === 'end' ? (reading(path, (_, size) => size) ?? 0) : 0;
  }

  next(): string[] {
    return (
      reading(this.#path, (file, size) => {
        if (size < this.#at) this.#at = 0;
        const bytes = Buffer.alloc(Math.min(size - this.#at, mostBytes));
        readSync(file, bytes, 0, bytes.length, this.#at);
        // A line longer than that is given in pieces.
        const end = bytes.lastIndexOf(0x0a) + 1 || (bytes.length === mostBytes ? mostBytes : 0);
        this.#at += end;
        return bytes
          .toString('utf8', 0, end)
          .split('\n')
          .filter((line) => line !== '');
      }) ?? []
    );
  }
}

/** Undefined where there is no such file. */
function reading<T>(path: string, work: (file: number, size: number) => T): T | undefined {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch {
    return undefined;
  }
  try {
    return work(file, fstatSync(file).size);
  } finally {
    closeSync(file);
  }
}
