/**
 * The endpoint that agents call: OpenAI's chat completions on 127.0.0.1, served while episodes are played. Each episode
 * has its own path, so any client that takes a base URL works.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ApiError, toApiError } from '../../serve/api-error.ts';
import { usageOf } from '../../serve/chat.ts';
import {
  eventHeaders,
  framed,
  type GuardOptions,
  guard,
  loopbackHosts,
  plainHeaders,
  readJson,
  sendJson,
} from '../../serve/http.ts';
import { type ChatRequest, chatRequest, parsed } from '../../serve/protocol.ts';
import type { ToolCall } from '../../serve/tools.ts';

/** The model name under which agents call the policy. */
export const policyName = 'policy';

/** The policy's answer to a call. */
export interface Answer {
  /** The call's number in its episode. */
  number: number;
  text: string;
  calls: readonly ToolCall[];
  finish: string;
  promptTokens: number;
  responseTokens: number;
}

/** Handles the calls of an episode. */
export type TakeCall = (request: ChatRequest) => Promise<Answer>;

/** Serves the episodes in progress. */
export class CallEndpoint {
  readonly apiKey = randomUUID();
  readonly #episodes = new Map<string, TakeCall>();
  readonly #server: Server;
  readonly #signMs: number;
  #guard: GuardOptions = { hosts: new Set() };
  #port = 0;

  /** `signMs`: the interval at which a waiting client gets a keep-alive byte. */
  static async open({ signMs = 15_000 } = {}): Promise<CallEndpoint> {
    const endpoint = new CallEndpoint(signMs);
    await endpoint.#listen();
    return endpoint;
  }

  private constructor(signMs: number) {
    this.#signMs = signMs;
    // A call waits until every episode of the turn has made its own, so the server sets no time limit.
    this.#server = createServer({ requestTimeout: 0, keepAliveTimeout: 75_000 }, (request, response) => {
      response.on('error', () => {}); // the client has disconnected
      this.#handle(request, response).catch((error: unknown) => {
        const told = toApiError(error);
        if (!response.headersSent) sendJson(response, told.status, told.body, told.headers);
        else response.destroy();
      });
    });
  }

  #listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(0, '127.0.0.1', () => {
        this.#port = (this.#server.address() as AddressInfo).port;
        this.#guard = { hosts: loopbackHosts(this.#port), apiKey: this.apiKey };
        resolve();
      });
    });
  }

  /** Registers an episode, and returns its base URL. */
  add(take: TakeCall): string {
    const name = `${this.#episodes.size + 1}`;
    this.#episodes.set(name, take);
    return `http://127.0.0.1:${this.#port}/${name}/v1`;
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    guard(request, this.#guard);
    const [, name = '', path = ''] = /^\/(\d+)\/v1\/([^?]*)/.exec(request.url ?? '') ?? [];
    const take = this.#episodes.get(name);
    if (take === undefined || (path !== 'chat/completions' && path !== 'models'))
      throw new ApiError(404, 'An episode answers to POST chat/completions under its base URL.', { code: 'not_found' });
    if (path === 'models') {
      const model = { id: policyName, object: 'model', created: 0, owned_by: 'attune' };
      return sendJson(response, 200, { object: 'list', data: [model] });
    }
    if (request.method !== 'POST') throw new ApiError(405, 'chat/completions takes POST.');
    const asked = parsed(chatRequest, await readJson(request));
    checkAsked(asked);
    const stop = this.#keptAlive(response, asked);
    try {
      const answer = await take(asked);
      if (response.destroyed) return;
      if (!response.headersSent) response.writeHead(200, headersOf(asked));
      response.end(asked.stream ? streamOf(answer, asked) : JSON.stringify(completionOf(answer)));
    } finally {
      stop();
    }
  }

  /**
   * A turn may take longer than a client waits without data. Node's fetch gives up after 5 minutes, and OpenAI's client
   * then repeats the call, which would count as another call of the episode. White space before JSON and comments in an
   * event stream have no meaning, so they keep the connection alive.
   */
  #keptAlive(response: ServerResponse, asked: ChatRequest): () => void {
    const timer = setInterval(() => {
      if (response.destroyed) return stop();
      if (!response.headersSent) response.writeHead(200, headersOf(asked));
      response.write(asked.stream ? ': waiting\n\n' : ' ');
    }, this.#signMs);
    timer.unref();
    const stop = () => clearInterval(timer);
    response.once('close', stop);
    return stop;
  }
}

/** Refuses options that would force text the policy did not sample freely. */
function checkAsked({ n, tool_choice: choice, response_format: format, logprobs }: ChatRequest): void {
  const refused = (param: string, why: string) => new ApiError(400, why, { param, code: 'unsupported_parameter' });
  if ((n ?? 1) !== 1) throw refused('n', 'A call of an agent gets one answer (n: 1): make several calls.');
  if (format != null && format.type !== 'text')
    throw refused('response_format', 'A grammar would choose tokens in place of the policy that is trained.');
  if (choice != null && choice !== 'auto' && choice !== 'none')
    throw refused(
      'tool_choice',
      'The policy that is trained chooses itself whether to call a tool (tool_choice: auto).',
    );
  if (logprobs) throw refused('logprobs', 'Log-probs are kept for training, and not sent.');
}

const headOf = ({ number }: Answer) => ({
  id: `chatcmpl-${number}`,
  created: Math.floor(Date.now() / 1000),
  model: policyName,
});

function completionOf(answer: Answer) {
  const { text, calls, finish } = answer;
  const content = calls.length > 0 && text === '' ? null : text;
  const message = { role: 'assistant', content, refusal: null, ...(calls.length > 0 && { tool_calls: calls }) };
  const choices = [{ index: 0, message, logprobs: null, finish_reason: finish }];
  return {
    ...headOf(answer),
    object: 'chat.completion',
    choices,
    usage: usageOf(answer.promptTokens, answer.responseTokens),
  };
}

const headersOf = ({ stream }: ChatRequest) =>
  stream ? eventHeaders : { ...plainHeaders, 'Content-Type': 'application/json' };

/** The whole answer as one stream: a turn is sampled for all episodes together and sent when complete. */
function streamOf(answer: Answer, { stream_options: options }: ChatRequest): string {
  const { text, calls, finish } = answer;
  const head = { ...headOf(answer), object: 'chat.completion.chunk' };
  const chunk = (delta: object, finished: string | null = null) => ({
    ...head,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finished }],
  });
  const chunks = [
    chunk({ role: 'assistant', content: '' }),
    ...(text === '' ? [] : [chunk({ content: text })]),
    ...(calls.length === 0 ? [] : [chunk({ tool_calls: calls.map((call, index) => ({ index, ...call })) })]),
    chunk({}, finish),
    ...(options?.include_usage
      ? [{ ...head, choices: [], usage: usageOf(answer.promptTokens, answer.responseTokens) }]
      : []),
  ];
  return framed([...chunks.map((each) => JSON.stringify(each)), '[DONE]']);
}
