/**
 * Server-sent events with names and ids, at the speed at which the client reads: one that leaves too much unread for
 * too long is given up, so that it cannot fill the memory.
 */
import type { ServerResponse } from 'node:http';
import { drained, eventHeaders, usualPatienceMs } from '../../serve/http.ts';
import { pageHeaders } from './headers.ts';

export interface EventOptions {
  patienceMs?: number;
  beatMs?: number;
}

export class EventStream {
  readonly #response: ServerResponse;
  readonly #patienceMs: number;
  /** Set while the client has unread bytes beyond the buffer. */
  #behind: Promise<void> | undefined;

  constructor(response: ServerResponse, { patienceMs = usualPatienceMs, beatMs = 15_000 }: EventOptions = {}) {
    this.#response = response;
    this.#patienceMs = patienceMs;
    response.writeHead(200, { ...pageHeaders, ...eventHeaders });
    response.flushHeaders();
    const beat = setInterval(() => this.#write(': beat\n\n'), beatMs).unref();
    response.once('close', () => clearInterval(beat));
  }

  get open(): boolean {
    return !this.#response.destroyed && !this.#response.writableEnded;
  }

  /** Sends an event; resolves when the client has room for more. */
  async send(event: string, data: unknown, id?: number): Promise<void> {
    const head = id === undefined ? '' : `id: ${id}\n`;
    this.#write(`${head}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    await this.#behind;
  }

  end(): void {
    if (this.open) this.#response.end();
  }

  #write(text: string): void {
    if (!this.open || this.#response.write(text)) return;
    this.#behind ??= drained(this.#response, this.#patienceMs).then(() => {
      this.#behind = undefined;
    });
  }
}
