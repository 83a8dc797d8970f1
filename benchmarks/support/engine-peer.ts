/** A Python program beside a benchmark: it says that it is ready, then answers one line of JSON per case asked for. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { python } from './peer.ts';

export class Peer {
  readonly version: string;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;

  private constructor(version: string, child: ChildProcessWithoutNullStreams, lines: AsyncIterator<string>) {
    this.version = version;
    this.#child = child;
    this.#lines = lines;
  }

  /** Undefined where there is no Python, or none with what the program needs. */
  static async start(program: string, options: object): Promise<Peer | undefined> {
    const file = join(import.meta.dirname, '..', program);
    if (!existsSync(file)) return undefined;
    const child = spawn(python, [file, JSON.stringify(options)]);
    child.on('error', () => {});
    const lines = linesOf(createInterface({ input: child.stdout }));
    const first = await Promise.race([lines.next(), once(child, 'close')]).catch(() => undefined);
    if (first === undefined || Array.isArray(first) || first.done) return undefined;
    return new Peer((JSON.parse(first.value) as { ready: string }).ready, child, lines);
  }

  async seconds(name: string): Promise<number> {
    this.#child.stdin.write(`${name}\n`);
    const answer = await this.#lines.next();
    if (answer.done) throw new Error(`the Python peer ended in "${name}": ${this.#child.stderr.read() ?? ''}`);
    return (JSON.parse(answer.value) as { seconds: number }).seconds;
  }

  stop(): void {
    this.#child.stdin.end();
  }
}

function linesOf(input: Interface): AsyncIterator<string> {
  return input[Symbol.asyncIterator]();
}
