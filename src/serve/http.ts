/**
 * HTTP below the routes: access checks, size limits, and writing of responses.
 *
 * A local server must be protected from browsers. A web page can send requests to 127.0.0.1, so the Origin is checked;
 * with DNS rebinding it can do so under its own name, so the Host is checked. Both are checked on every route.
 */
import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from './api-error.ts';
import type { Pace } from './pace.ts';

export interface GuardOptions {
  /** Accepted values of the Host header; any for a server that others can reach. */
  hosts: ReadonlySet<string> | 'any';
  /** If undefined, no key is required. */
  apiKey?: string;
}

const loopback = ['127.0.0.1', 'localhost', '[::1]'];

export function isLoopback(host: string): boolean {
  return loopback.includes(host) || host === '::1';
}

export function loopbackHosts(port: number): ReadonlySet<string> {
  return new Set(loopback.flatMap((name) => (port === 80 ? [name, `${name}:80`] : [`${name}:${port}`])));
}

/** Throws if the request is not allowed. */
export function guard(request: IncomingMessage, options: GuardOptions): void {
  const { host = '', origin } = request.headers;
  if (options.hosts !== 'any' && !options.hosts.has(host.toLowerCase()))
    throw new ApiError(403, `This server does not answer to the host "${host.slice(0, 100)}".`, { code: 'host' });
  if (origin !== undefined && origin !== `http://${host}`)
    throw new ApiError(403, 'Requests of web pages from elsewhere are refused.', { code: 'origin' });
  if (options.apiKey === undefined || request.url === '/health') return;
  const given = /^Bearer (.*)$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
  if (!equal(given, options.apiKey))
    throw new ApiError(401, 'The API key is missing or wrong: send "Authorization: Bearer <key>".', {
      code: 'invalid_api_key',
    });
}

/** Compares in constant time. */
function equal(given: string, wanted: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(wanted)];
  return a.length === b.length && timingSafeEqual(a, b);
}

export const mostBodyBytes = 8 * 2 ** 20;
/** This much more of a too large body is read and dropped: a client that is still sending would not read the answer. */
const mostDiscardedBytes = 32 * 2 ** 20;

/** The body as JSON; its size is limited, whatever its length header says. */
export async function readJson(request: IncomingMessage, limit = mostBodyBytes): Promise<unknown> {
  const tooLarge = () =>
    new ApiError(413, `The request's body is larger than ${limit} bytes.`, { code: 'body_too_large' });
  const mostRead = limit + mostDiscardedBytes;
  if (Number(request.headers['content-length'] ?? 0) > mostRead) throw tooLarge();
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > mostRead) throw tooLarge();
    if (size <= limit) chunks.push(chunk);
    else chunks.length = 0;
  }
  if (size > limit) throw tooLarge();
  let body: unknown;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (error) {
    throw new ApiError(400, `The request's body is not valid JSON: ${(error as Error).message}.`);
  }
  // The code that reads it recurses level by level, and would overflow the stack.
  if (isDeeper(body, mostLevels))
    throw new ApiError(400, `The request's body is nested deeper than ${mostLevels} levels.`);
  return body;
}

const mostLevels = 100;

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((each) => isDeeper(each, levels - 1));
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.headersSent || response.destroyed) return;
  const text = JSON.stringify(body);
  response.writeHead(status, { ...plainHeaders, 'Content-Type': 'application/json', ...headers });
  response.end(text);
}

export const plainHeaders = {
  'X-Content-Type-Options': 'nosniff',
  'Cache-Control': 'no-store',
  'Cross-Origin-Resource-Policy': 'same-origin',
} as const;

export const eventHeaders = {
  ...plainHeaders,
  'Content-Type': 'text/event-stream; charset=utf-8',
  Connection: 'keep-alive',
} as const;

/** How long a client may leave sent bytes unread before its connection is closed. */
export const usualPatienceMs = 30_000;

/** Resolves when the client has read what was sent; a client that leaves it unread for too long is disconnected. */
export function drained(response: ServerResponse, patienceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => response.destroy(), patienceMs);
    const done = () => {
      clearTimeout(timer);
      response.off('drain', done);
      response.off('close', done);
      resolve();
    };
    response.on('drain', done);
    response.on('close', done);
  });
}

/** Server-sent events, at the speed at which the client reads. */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #ping: NodeJS.Timeout;
  readonly #patienceMs: number;
  readonly #pace: Pace;
  #onFirstToken: (() => void) | undefined;

  constructor(
    response: ServerResponse,
    pace: Pace,
    options: { patienceMs?: number; onFirstToken?: (() => void) | undefined } = {},
  ) {
    this.#onFirstToken = options.onFirstToken;
    this.#patienceMs = options.patienceMs ?? usualPatienceMs;
    this.#pace = pace;
    this.#response = response;
    response.writeHead(200, eventHeaders);
    // Proxies may close a silent connection.
    this.#ping = setInterval(() => response.write(': waiting\n\n'), 15_000);
    this.#ping.unref();
    const leave = pace.enter();
    // Called however the stream ends: by itself, by an error, or because the client disconnects.
    response.once('close', () => {
      clearInterval(this.#ping);
      leave();
    });
  }

  /** Whether the client is still connected. */
  get open(): boolean {
    return !this.#response.destroyed && !this.#response.writableEnded;
  }

  /** Reports the first token. */
  began(): void {
    this.#onFirstToken?.();
    this.#onFirstToken = undefined;
  }

  /** Sends events (JSON texts) in one write; if the client is behind, resolves when it has caught up. */
  async send(events: readonly string[]): Promise<void> {
    if (!this.open || events.length === 0) return;
    if (!this.#response.write(framed(events))) await drained(this.#response, this.#patienceMs);
  }

  /** Resolves when it is time for the next write, or with `end`. */
  async turn(end: Promise<unknown>): Promise<void> {
    await Promise.race([this.#pace.turn(), end]);
  }

  /** Sends the last events and the end, in one write. */
  end(events: readonly string[]): void {
    if (this.open) this.#response.end(framed([...events, '[DONE]']));
  }
}

/** Events' data in the wire format. */
export const framed = (events: readonly string[]): string => events.map((event) => `data: ${event}\n\n`).join('');
