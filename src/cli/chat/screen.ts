/**
 * The terminal side of a chat: lines in (with editing, history and several lines), text out. Ctrl-C calls
 * `onInterrupt`: it stops a response, not the program.
 */
import { createInterface, type Interface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import type { Part } from '../../text/chat/thinking-parts.ts';
import { visible } from '../terminal/print.ts';

export interface ScreenOptions {
  input?: Readable & { isTTY?: boolean };
  output?: Writable & { isTTY?: boolean };
  /** Where failures are told that nobody sits in front of; standard error beside standard output. */
  errors?: Writable;
}

export class Screen {
  readonly terminal: boolean;
  readonly #output: Writable;
  readonly #errors: Writable;
  readonly #lines: Interface;
  readonly #waiting: string[] = [];
  #wake: (() => void) | undefined;
  #closed = false;
  /** Called on Ctrl-C; returns whether there was something to stop. */
  onInterrupt: () => boolean = () => false;
  #interrupts = 0;
  /** Whether a message has lines already, and whether Ctrl-C dropped them. */
  #begun = false;
  #dropped = false;

  constructor({ input = process.stdin, output = process.stdout, errors }: ScreenOptions = {}) {
    this.terminal = Boolean(input.isTTY && output.isTTY);
    this.#output = output;
    this.#errors = errors ?? (output === process.stdout && !this.terminal ? process.stderr : output);
    this.#lines = createInterface({
      input,
      output: this.terminal ? output : undefined,
      terminal: this.terminal,
      historySize: 500,
    });
    this.#lines.on('line', (line) => this.#arrived(line));
    this.#lines.on('close', () => {
      this.#closed = true;
      this.#wake?.();
    });
    this.#lines.on('SIGINT', () => this.#interrupted());
  }

  /**
   * Reads a message. A line that ends in a backslash continues, and so does all text between two lines of """.
   * Undefined at the end of input.
   */
  async ask(prompt: string): Promise<string | undefined> {
    try {
      return await this.#message(prompt);
    } finally {
      this.#begun = false;
    }
  }

  async #message(prompt: string): Promise<string | undefined> {
    let text = '';
    let fenced = false;
    for (let first = true; ; first = false) {
      this.#begun = !first;
      const line = await this.#line(first ? prompt : '… ');
      if (this.#dropped) {
        this.#dropped = false;
        return this.#message(prompt);
      }
      if (line === undefined) return text === '' ? undefined : text;
      if (line.trim() === '"""') {
        if (fenced) return text.replace(/\n$/, '');
        fenced = true;
      } else if (fenced) text += `${line}\n`;
      else if (line.endsWith('\\')) text += `${line.slice(0, -1)}\n`;
      else return text + line;
    }
  }

  write(text: string): void {
    this.#output.write(visible(text));
  }
  line(text = ''): void {
    this.write(`${text}\n`);
  }
  /** A remark about the chat, not part of it. */
  note(text: string): void {
    this.#styled(`${text}\n`, '2');
  }
  /** Why a message got no response, or a command did nothing. */
  failure(text: string): void {
    if (this.#errors === this.#output) this.note(text);
    else this.#errors.write(visible(`${text}\n`));
  }
  part({ text, thinking }: Part): void {
    if (thinking) this.#styled(text, '2;3');
    else this.write(text);
  }

  close(): void {
    this.#lines.close();
  }

  /** Writes styled text; control characters in it are made visible first. */
  #styled(text: string, style: string): void {
    this.#output.write(this.terminal ? `\u001b[${style}m${visible(text)}\u001b[0m` : visible(text));
  }

  #arrived(line: string): void {
    this.#interrupts = 0;
    this.#waiting.push(line);
    this.#wake?.();
  }

  /** Stops a response, else drops what was typed, else leaves at the second time. */
  #interrupted(): void {
    if (this.onInterrupt()) return;
    if (this.#lines.line !== '' || this.#begun) {
      this.#interrupts = 0;
      // To the end of the line, and back over all of it.
      this.#lines.write(null, { ctrl: true, name: 'e' });
      this.#lines.write(null, { ctrl: true, name: 'u' });
      if (!this.#begun) return;
      this.#begun = false;
      this.#dropped = true;
      this.line();
      this.#wake?.();
      return;
    }
    if (this.#interrupts++ > 0) this.close();
    else this.note('\n(Ctrl-C again, Ctrl-D or /exit leaves)');
    if (!this.#closed) this.#lines.prompt();
  }

  async #line(prompt: string): Promise<string | undefined> {
    if (this.terminal && !this.#closed) {
      this.#lines.setPrompt(prompt);
      this.#lines.prompt();
    }
    // A line that comes right after Ctrl-C belongs to the next message.
    while (this.#waiting.length === 0 || this.#dropped) {
      if (this.#closed || this.#dropped) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#waiting.shift();
  }
}
