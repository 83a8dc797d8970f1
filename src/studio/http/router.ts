/**
 * Routes as data: a method, a path with `:names`, and what answers it. A name matches letters, digits, `_`, `-` and `.`
 * as they are: nothing is decoded, so an encoded slash or dot never reaches a file system.
 *
 *     const routes: Route[] = [get('/api/runs/:id', ({ params }) => detail(params.id))];
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import { ApiError } from '../../serve/api-error.ts';
import { plainHeaders, readJson } from '../../serve/http.ts';
import type { ApiFailure, FieldFault } from '../api/session.ts';
import { EventStream } from './events.ts';
import { pageHeaders } from './headers.ts';

export interface Asked {
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  /** The JSON body of a POST. */
  body: unknown;
  request: IncomingMessage;
  /** Opens the response as a stream of events; the handler then answers nothing else. */
  stream(): EventStream;
  /** Aborted when the client goes away. */
  gone: AbortSignal;
}

/** The JSON to answer; undefined where the response was streamed. */
export type Handler = (asked: Asked) => unknown;

export interface Route {
  method: 'GET' | 'POST';
  path: string;
  handler: Handler;
}

export const get = (path: string, handler: Handler): Route => ({ method: 'GET', path, handler });
export const post = (path: string, handler: Handler): Route => ({ method: 'POST', path, handler });

interface Compiled extends Route {
  pattern: RegExp;
}

export interface RouterOptions {
  /** How long a client may leave a stream unread before it is given up. */
  patienceMs?: number;
  /** Time between the beats that keep a silent stream open. */
  beatMs?: number;
  /** Largest body of a POST. */
  bodyLimit?: number;
}

/** Largest body of a POST: a long conversation fits many times over. */
const usualBodyLimit = 2 * 2 ** 20;

export class Router {
  readonly #routes: Compiled[];
  readonly #options: RouterOptions;

  constructor(routes: readonly Route[], options: RouterOptions = {}) {
    this.#options = options;
    this.#routes = routes.map((route) => ({
      ...route,
      pattern: new RegExp(`^${route.path.replace(/:(\w+)/g, '(?<$1>[\\w.-]{1,128})')}$`),
    }));
  }

  get paths(): readonly Pick<Route, 'method' | 'path'>[] {
    return this.#routes;
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path = '/', search = ''] = (request.url ?? '/').split('?', 2);
    const found = this.#routes.filter(({ pattern }) => pattern.test(path));
    const route = found.find(({ method }) => method === request.method);
    if (route === undefined) {
      if (found.length > 0) throw new ApiError(405, `${path} takes ${found[0]?.method}.`, { code: 'method' });
      throw new ApiError(404, `There is no ${path.slice(0, 200)} here.`, { code: 'not_found' });
    }
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    let streamed = false;
    const answer = await route.handler({
      params: { ...route.pattern.exec(path)?.groups },
      query: new URLSearchParams(search),
      body: route.method === 'POST' ? await this.#body(request) : undefined,
      request,
      gone: gone.signal,
      stream: () => {
        streamed = true;
        return new EventStream(response, this.#options);
      },
    });
    if (answer instanceof Document) answer.send(response);
    else if (!streamed) sendJson(response, 200, answer ?? {});
  }

  async #body(request: IncomingMessage): Promise<unknown> {
    const type = request.headers['content-type'] ?? '';
    if (!/^application\/json\b/i.test(type))
      throw new ApiError(415, 'Send JSON, with Content-Type: application/json.', { code: 'content_type' });
    return readJson(request, this.#options.bodyLimit ?? usualBodyLimit);
  }
}

/**
 * A document of its own, such as a run's report: shown by the browser in a sandbox, where it has no scripts, no origin
 * and loads nothing.
 */
export class Document {
  readonly #html: string;
  constructor(html: string) {
    this.#html = html;
  }
  send(response: ServerResponse): void {
    response.writeHead(200, {
      ...plainHeaders,
      ...pageHeaders,
      'Content-Type': 'text/html; charset=utf-8',
      'Content-Security-Policy': "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    });
    response.end(this.#html);
  }
}

/** The body as the schema wants it, or a 400 that names each field at fault. */
export function parsed<Schema extends z.ZodType>(schema: Schema, body: unknown): z.output<Schema> {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const faults = result.error.issues.map((issue) => ({ field: issue.path.join('.'), message: issue.message }));
  throw new Refused(
    400,
    faults.map(({ field, message }) => `${field === '' ? 'body' : field}: ${message}`).join('; '),
    faults,
  );
}

/** A refusal with the fault of each field. */
export class Refused extends ApiError {
  override name = 'Refused';
  readonly faults: FieldFault[];
  constructor(status: number, message: string, faults: FieldFault[]) {
    super(status, message, { code: 'invalid', ...(faults[0] === undefined ? {} : { param: faults[0].field }) });
    this.faults = faults;
  }
}

/** An error as the page reads it. */
export function failureOf(error: ApiError): ApiFailure {
  const { message, code, param } = error;
  const faults = error instanceof Refused ? { faults: error.faults } : {};
  return { error: { message, code: code ?? 'invalid', ...(param === null ? {} : { field: param }), ...faults } };
}

/** JSON has no NaN and no infinity: they become null, as JSON.stringify does. */
export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, {
    ...plainHeaders,
    ...pageHeaders,
    'Content-Type': 'application/json; charset=utf-8',
    // A refused request may have an unread body: the connection is not used again.
    ...(status >= 400 ? { Connection: 'close' } : {}),
  });
  response.end(JSON.stringify(body));
}
