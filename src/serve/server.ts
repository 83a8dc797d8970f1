/**
 * The OpenAI-compatible server, with the same sampler as everything else.
 *
 *     const registry = new Registry();
 *     await registry.add('tiny', 'models/tiny');
 *     await using server = await serve(registry, { port: 8000 });
 *     console.log(server.url);                                       // http://127.0.0.1:8000
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { above, checkArguments, text, whole } from '../arguments.ts';
import { checkNames, UserError } from '../errors.ts';
import { lookup } from '../lookup.ts';
import type { RewardItem } from '../rewards/index.ts';
import { ApiError, toApiError } from './api-error.ts';
import { chatCompletion, streamChat, type Usage } from './chat.ts';
import { completion, streamCompletion } from './completions.ts';
import { Counters } from './counters.ts';
import {
  EventStream,
  type GuardOptions,
  guard,
  isLoopback,
  loopbackHosts,
  plainHeaders,
  readJson,
  sendJson,
  usualPatienceMs,
} from './http.ts';
import { Pace } from './pace.ts';
import { chatRequest, completionRequest, parsed, scoreRequest } from './protocol.ts';
import { missing, Registry } from './registry.ts';
import { templateMessage } from './requests.ts';

/** Address, port, key and limits of a server, and callbacks for its requests. */
export interface ServeOptions {
  /** 127.0.0.1 unless given; any other address needs a key. */
  host?: string;
  /** 8000 unless given; 0 takes a free one. */
  port?: number;
  apiKey?: string;
  /** Called after every request; prompts are included only with `logPrompts`. */
  onRequest?: (entry: RequestEntry) => void;
  logPrompts?: boolean;
  /** How long a client may leave a stream unread before its connection is closed. */
  patienceMs?: number;
}

const optionNames: Record<keyof ServeOptions, true> = {
  ...{ host: true, port: true, apiKey: true, onRequest: true, logPrompts: true, patienceMs: true },
};

/** One request as the server logs it. */
export interface RequestEntry {
  route: string;
  status: number;
  seconds: number;
  model?: string;
  usage?: Usage;
  error?: string;
  /** The error, if the server itself failed. */
  cause?: unknown;
  body?: unknown;
}

/** A server that is listening. */
export interface RunningServer {
  readonly url: string;
  readonly port: number;
  /** Finishes running requests and takes no new ones; resolves after the last response. */
  drain(): Promise<void>;
  /** Ends at once. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * An idle connection stays open for longer than clients keep theirs. If the server closed first, it might do so while
 * the next request is on its way, and that request would be lost: Node's usual five seconds pass while a long prompt is
 * read.
 */
const timeouts = { requestTimeout: 60_000, headersTimeout: 20_000, keepAliveTimeout: 75_000 } as const;

/** Starts an OpenAI-compatible server for the models of a registry. */
export async function serve(registry: Registry, options: ServeOptions = {}): Promise<RunningServer> {
  checkArguments('serve', options, { host: text, port: whole(0, 65535), apiKey: text, patienceMs: above(0) });
  checkNames('serve', options, Object.keys(optionNames));
  if (!(registry instanceof Registry)) throw new UserError('serve takes a Registry of the models to offer.');
  const { host = '127.0.0.1', port = 8000, apiKey } = options;
  if (!isLoopback(host) && (apiKey ?? '') === '')
    throw new UserError(
      `Others can reach ${host}: an API key is needed (attune serve --api-key-env NAME takes it from the environment), or stay on 127.0.0.1.`,
    );
  const app = new App(registry, options);
  const server = createServer(timeouts, (request, response) => {
    void app.handle(request, response);
  });
  server.maxConnections = 2048;
  await listen(server, host, port);
  const actual = (server.address() as AddressInfo).port;
  app.guard = { hosts: isLoopback(host) ? loopbackHosts(actual) : 'any', ...(apiKey === undefined ? {} : { apiKey }) };
  const close = async () => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    await closed;
  };
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${actual}`,
    port: actual,
    async drain() {
      // It keeps listening: new requests, and /health, are answered with 503, which a closed port could not do.
      app.draining = true;
      await app.idle();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, 1000).unref())]);
      await close();
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const busy = error.code === 'EADDRINUSE';
      reject(
        busy
          ? new UserError(`Port ${port} is taken: name another with --port.`)
          : new UserError(`${host}:${port} cannot be used: ${error.message}`),
      );
    });
    server.listen(port, host, resolve);
  });
}

/** Tokens that a reward model reads on a CPU before other requests get a turn; a longer text is read alone. */
const scoredTokens = 1024;

type Handler = (
  body: unknown,
  request: IncomingMessage,
  response: ServerResponse,
  entry: RequestEntry,
) => Promise<unknown>;

const modelPrefix = '/v1/models/';

class App {
  guard: GuardOptions = { hosts: new Set() };
  draining = false;
  readonly #registry: Registry;
  readonly #options: ServeOptions;
  readonly #counters = new Counters();
  readonly #started = Date.now();
  readonly #pace = new Pace();
  #whenIdle: (() => void)[] = [];

  constructor(registry: Registry, options: ServeOptions) {
    this.#registry = registry;
    this.#options = options;
  }

  idle(): Promise<void> {
    if (this.#counters.active === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenIdle.push(resolve));
  }

  readonly #get: Record<string, (response: ServerResponse) => void> = {
    '/health': (response) =>
      sendJson(response, this.draining ? 503 : 200, { status: this.draining ? 'draining' : 'ok' }),
    '/metrics': (response) => {
      response.writeHead(200, { ...plainHeaders, 'Content-Type': 'text/plain; version=0.0.4' });
      response.end(this.#counters.text(this.#gauges()));
    },
    '/v1/models': (response) => sendJson(response, 200, { object: 'list', data: this.#models() }),
  };

  readonly #post: Record<string, Handler> = {
    '/v1/chat/completions': async (body, request, response, entry) => {
      const asked = parsed(chatRequest, body);
      const served = this.#registry.find(asked.model);
      entry.model = served.name;
      const gone = goneSignal(request, response);
      if (!asked.stream) return this.#used(entry, await chatCompletion(served, asked, gone));
      const open = () => this.#opened(response);
      return void this.#count(entry, await streamChat(served, asked, gone, open));
    },
    '/v1/completions': async (body, request, response, entry) => {
      const asked = parsed(completionRequest, body);
      const served = this.#registry.find(asked.model);
      entry.model = served.name;
      const gone = goneSignal(request, response);
      if (!asked.stream) return this.#used(entry, await completion(served, asked, gone));
      const open = () => this.#opened(response);
      return void this.#count(entry, await streamCompletion(served, asked, gone, open));
    },
    '/v1/score': async (body, request, response, entry) => {
      const asked = parsed(scoreRequest, body);
      const scorer = this.#registry.findReward(asked.model);
      entry.model = scorer.name;
      const items = asked.items.map(({ prompt, messages, response: text }, i) => {
        const read = messages?.map(templateMessage);
        if ((prompt === undefined) === (read === undefined))
          throw new ApiError(400, `items.${i}: give either a prompt or messages.`, { param: 'items' });
        return { prompt: read ?? (prompt as string), response: text };
      });
      const cut = new Set<RewardItem>();
      const scores = await scorer.score(items, {
        signal: goneSignal(request, response),
        tokenBudget: scorer.model.device === 'cpu' ? scoredTokens : undefined,
        onTruncated: (item) => cut.add(item),
      });
      const data = scores.map((score, index) => ({
        ...{ object: 'score', index, score },
        ...(cut.has(items[index] as RewardItem) ? { truncated: true } : {}),
      }));
      return { object: 'list', model: asked.model ?? this.#registry.rewardModels[0], data };
    },
  };

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const started = performance.now();
    const path = (request.url ?? '').split('?')[0] as string;
    const entry: RequestEntry = {
      route: this.#routes().includes(path) ? path : path.startsWith(modelPrefix) ? '/v1/models' : 'other',
      status: 200,
      seconds: 0,
    };
    this.#counters.active++;
    response.on('error', () => {}); // the client has gone
    try {
      guard(request, this.guard);
      await this.#answer(request, response, path, entry);
    } catch (error) {
      this.#fail(response, entry, error);
    } finally {
      this.#counters.active--;
      if (entry.status === 200) entry.status = response.statusCode;
      entry.seconds = (performance.now() - started) / 1000;
      this.#counters.count(entry.route, entry.status);
      if (request.method === 'POST') this.#counters.requestSeconds.add(entry.seconds);
      this.#options.onRequest?.(entry);
      if (this.#counters.active === 0) for (const wake of this.#whenIdle.splice(0)) wake();
    }
  }

  #routes(): string[] {
    return [...Object.keys(this.#post), ...Object.keys(this.#get)];
  }

  async #answer(request: IncomingMessage, response: ServerResponse, path: string, entry: RequestEntry): Promise<void> {
    const [get, post] = [lookup(this.#get, path) ?? this.#oneModel(path), lookup(this.#post, path)];
    // Node sends the headers of an answer to HEAD without its body.
    if ((request.method === 'GET' || request.method === 'HEAD') && get !== undefined) return get(response);
    if (post === undefined || request.method !== 'POST') {
      if (get === undefined && post === undefined)
        throw new ApiError(404, `There is no ${path.slice(0, 200)} here. There are: ${this.#routes().join(', ')}.`, {
          code: 'not_found',
        });
      throw new ApiError(405, `${path} takes ${get === undefined ? 'POST' : 'GET'}.`);
    }
    if (this.draining) throw new ApiError(503, 'The server is shutting down.', { code: 'draining' });
    const type = request.headers['content-type'] ?? '';
    if (!/^application\/json\b/i.test(type)) throw new ApiError(415, 'Send JSON, with Content-Type: application/json.');
    const body = await readJson(request);
    if (this.#options.logPrompts) entry.body = body;
    const answer = await post(body, request, response, entry);
    if (answer !== undefined) sendJson(response, 200, answer);
  }

  #fail(response: ServerResponse, entry: RequestEntry, error: unknown): void {
    const told = toApiError(error);
    entry.status = told.status;
    entry.error = told.message;
    if (told.status >= 500) entry.cause = error;
    if (!response.headersSent) sendJson(response, told.status, told.body, { ...told.headers, Connection: 'close' });
    else if (!response.writableEnded) {
      // In the middle of a stream the status is already sent; clients read an error event.
      response.write(`data: ${JSON.stringify(told.body)}\n\n`);
      response.end();
    }
  }

  #opened(response: ServerResponse): EventStream {
    const started = performance.now();
    const { patienceMs = usualPatienceMs } = this.#options;
    const onFirstToken = () => this.#counters.firstTokenSeconds.add((performance.now() - started) / 1000);
    return new EventStream(response, this.#pace, { patienceMs, onFirstToken });
  }

  #used<Answer extends { usage: Usage }>(entry: RequestEntry, answer: Answer): Answer {
    this.#count(entry, answer.usage);
    return answer;
  }

  #count(entry: RequestEntry, usage: Usage): void {
    entry.usage = usage;
    this.#counters.promptTokens += usage.prompt_tokens;
    this.#counters.responseTokens += usage.completion_tokens;
  }

  /** For `/v1/models/NAME`. A name with slashes may be written literally or with %2F, as OpenAI's client does. */
  #oneModel(path: string): ((response: ServerResponse) => void) | undefined {
    if (!path.startsWith(modelPrefix)) return undefined;
    let name = path.slice(modelPrefix.length);
    try {
      name = decodeURIComponent(name);
    } catch {
      // used literally: no model has such a name
    }
    return (response) => {
      const models = this.#models();
      const found = models.find(({ id }) => id === name);
      if (found === undefined)
        throw missing(
          'model',
          name,
          models.map(({ id }) => id),
        );
      sendJson(response, 200, found);
    };
  }

  #models() {
    const created = Math.floor(this.#started / 1000);
    const one = (id: string, more: object) => ({ id, object: 'model', created, owned_by: 'attune', ...more });
    return [
      ...this.#registry.models.map(({ name, maxTokens, adapter }) =>
        one(name, { max_model_len: maxTokens, ...(adapter === null ? {} : { adapter: true }) }),
      ),
      ...this.#registry.rewardModels.map((name) => one(name, { kind: 'reward' })),
    ];
  }

  #gauges(): Record<string, number> {
    const { samplers } = this.#registry;
    const sum = (pick: (sampler: (typeof samplers)[number]) => number) =>
      samplers.reduce((total, each) => total + pick(each), 0);
    return {
      responses_waiting: sum(({ waiting }) => waiting),
      cache_bytes: sum(({ cacheBytes }) => cacheBytes),
      cache_blocks: sum(({ cacheUse }) => cacheUse.blocks),
      cache_blocks_used: sum(({ cacheUse }) => cacheUse.used),
      preemptions: sum(({ cacheUse }) => cacheUse.preemptions),
      prompt_tokens_computed: sum(({ promptTokens }) => promptTokens.computed),
      prompt_tokens_reused: sum(({ promptTokens }) => promptTokens.reused),
    };
  }
}

/** Aborted when the client disconnects before its response is complete. */
function goneSignal(request: IncomingMessage, response: ServerResponse): AbortSignal {
  const controller = new AbortController();
  response.on('close', () => {
    if (!response.writableFinished) controller.abort();
  });
  request.on('error', () => controller.abort());
  return controller.signal;
}
