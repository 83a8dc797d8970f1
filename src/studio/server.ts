/**
 * The studio's server: every request passes the rules of http/guard.ts, then it is an asset, the entrance with a token,
 * or a route.
 *
 *     await using studio = await startStudio({ root: './checkpoints', port: 7860, version: '0.1.0', above });
 *     console.log(studio.newUrl());                     // http://127.0.0.1:7860/?token=…
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { UserError } from '../errors.ts';
import { ApiError, toApiError } from '../serve/api-error.ts';
import { isLoopback } from '../serve/http.ts';
import { Assets, sendPage } from './http/assets.ts';
import { allRules, hostsOf, pathOf, type Rule, type Rules } from './http/guard.ts';
import { Keys } from './http/keys.ts';
import { failureOf, Router, type RouterOptions, sendJson } from './http/router.ts';
import { type Studio, type StudioOptions, studioParts } from './studio.ts';

export interface ServerOptions extends StudioOptions, RouterOptions {
  /** 127.0.0.1 unless given; any other address needs a token. */
  host?: string;
  /** 7860 unless given; 0 takes a free one. */
  port?: number;
  /** A token of the user's own, for a server that others can reach. */
  token?: string;
  /** Further names by which others reach it. */
  allowedHosts?: readonly string[];
  /** Folder of the built page. */
  page?: string;
  /** Rules that requests must pass; tests take one out to see what it keeps away. */
  rules?: Readonly<Record<string, Rule>>;
  /** Failures of the server itself. */
  onFailure?: (error: unknown, path: string) => void;
}

export interface RunningStudio extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** The address with a new one-time token. */
  newUrl(): string;
  readonly studio: Studio;
  close(): Promise<void>;
}

/** Shortest token that is taken for a server that others can reach. */
const leastToken = 16;

export async function startStudio(options: ServerOptions): Promise<RunningStudio> {
  const { host = '127.0.0.1', port = 7860, token } = options;
  if (!isLoopback(host) && (token ?? '') === '')
    throw new UserError(
      `Others can reach ${host}: put a token into the environment and name its variable with --token-env, or stay on 127.0.0.1.`,
    );
  if (token !== undefined && token.length < leastToken)
    throw new UserError(
      `The token has ${token.length} characters: take at least ${leastToken}, so that it cannot be guessed.`,
    );
  const studio = studioParts(options);
  const server = createServer({ requestTimeout: 30_000, headersTimeout: 10_000 });
  server.maxConnections = 256;
  try {
    await listen(server, host, port);
  } catch (error) {
    await studio.close();
    throw error;
  }
  const actual = (server.address() as AddressInfo).port;
  const keys = new Keys(actual, token);
  const hosts = hostsOf(host, actual, options.allowedHosts);
  const entrance = new Entrance({ hosts, keys, readOnly: options.readOnly ?? false }, options, studio);
  server.on('request', (request, response) => void entrance.handle(request, response));
  const shownHost = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  const url = `http://${shownHost.includes(':') ? `[${shownHost}]` : shownHost}:${actual}`;
  const close = async () => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    await closed;
    await studio.close();
  };
  return {
    url,
    port: actual,
    studio,
    newUrl: () => `${url}/?token=${keys.newToken()}`,
    close,
    [Symbol.asyncDispose]: close,
  };
}

class Entrance {
  readonly #rules: Rules;
  readonly #checks: [string, Rule][];
  readonly #assets: Assets;
  readonly #router: Router;
  readonly #onFailure: ServerOptions['onFailure'];

  constructor(rules: Rules, options: ServerOptions, studio: Studio) {
    this.#rules = rules;
    this.#checks = Object.entries(options.rules ?? allRules);
    this.#assets = new Assets(options.page);
    this.#router = new Router(studio.routes, options);
    this.#onFailure = options.onFailure;
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('error', () => {}); // the client has gone
    const path = pathOf(request);
    try {
      const token = path === '/' ? new URLSearchParams((request.url ?? '').split('?')[1]).get('token') : null;
      // Whoever comes with a token has no cookie yet.
      for (const [name, check] of this.#checks) if (!(token !== null && name === 'cookie')) check(request, this.#rules);
      if (token !== null) this.#letIn(token, response);
      else if (request.method !== 'GET' || path.startsWith('/api/') || !this.#assets.send(path, response))
        await this.#router.answer(request, response);
    } catch (error) {
      this.#fail(response, path, error);
    }
  }

  /**
   * A page that leads on to the studio, not a redirect: after a link from elsewhere a browser would follow a redirect
   * without the cookie, which is SameSite=Strict.
   */
  #letIn(token: string, response: ServerResponse): void {
    const cookie = this.#rules.keys.exchange(token);
    if (cookie === undefined)
      throw new ApiError(403, 'This address was used before, or is of an earlier studio.', { code: 'token' });
    sendPage(response, 200, 'attune studio', 'Opening <a href="/">the studio</a>.', { 'Set-Cookie': cookie });
  }

  #fail(response: ServerResponse, path: string, error: unknown): void {
    const told = toApiError(error);
    if (told.status >= 500) this.#onFailure?.(error, path);
    if (response.headersSent) {
      response.end();
      return;
    }
    if (path === '/' && (told.code === 'cookie' || told.code === 'token'))
      sendPage(
        response,
        told.status,
        'attune studio is closed to strangers',
        'Open it by the address that its terminal shows. Each works once: press Enter in the terminal for another.',
      );
    else sendJson(response, told.status, failureOf(told));
  }
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const busy = error.code === 'EADDRINUSE';
      reject(
        new UserError(
          busy
            ? `Port ${port} is taken: name another with --port.`
            : `${host}:${port} cannot be used: ${error.message}`,
        ),
      );
    });
    server.listen(port, host, resolve);
  });
}
