/** Requests in the sampler: the caller's side (tokens, responses, cancel) and the sampler's side. */
import type { Tokenizer } from '../../text/index.ts';
import type { GenerationRequest, SampledResponse, Token } from './request.ts';
import { Row } from './row.ts';

/**
 * A request that was submitted: iterate over its tokens as they are written, or await its responses.
 *
 *     const submission = sampler.submit({ prompt, maxNewTokens: 64 });
 *     for await (const { id } of submission) …;                 // leaving the loop early cancels
 *     const [response] = await submission.responses;
 */
export interface Submission extends AsyncIterable<Token> {
  /** The tokens in batches: each time, all that were written since. For a caller that is slower than the sampler. */
  batches(): AsyncGenerator<readonly Token[]>;
  /** The responses of all samples, when all are done; rejects if the request failed. */
  readonly responses: Promise<SampledResponse[]>;
  /** Ends the request at the next step; its responses hold what was written so far. */
  cancel(): void;
}

export interface SubmissionOptions {
  tokenizer?: Tokenizer | undefined;
  signal?: AbortSignal | undefined;
  /** Called for each token. */
  count?: () => void;
  /** A caller follows it token by token. Other submissions do not keep their tokens for iteration. */
  watched?: boolean;
}

/** A submission as the sampler holds it, with its rows. */
export class Submitted implements Submission {
  readonly request: GenerationRequest;
  readonly rows: readonly Row[];
  /** The rows that have no slot yet. */
  readonly waiting: Row[];
  readonly adapter: string | null;
  readonly watched: boolean;
  readonly responses: Promise<SampledResponse[]>;
  readonly #done = Promise.withResolvers<SampledResponse[]>();
  readonly #signals: readonly AbortSignal[];
  readonly #tokens: Token[] = [];
  #cancelled = false;
  #settled = false;
  /** Set while a consumer waits for the next token. */
  #heard: PromiseWithResolvers<void> | undefined;

  constructor(request: GenerationRequest, adapter: string | null, options: SubmissionOptions) {
    this.request = request;
    this.adapter = adapter;
    this.watched = (options.watched ?? false) || request.onToken !== undefined || request.signal !== undefined;
    this.rows = Array.from({ length: request.samples ?? 1 }, (_, i) => new Row(request, i, options.tokenizer));
    this.waiting = [...this.rows];
    this.#signals = [request.signal, options.signal].filter((signal) => signal !== undefined);
    this.responses = this.#done.promise;
    this.responses.catch(() => {}); // an error also reaches whoever iterates; this avoids an unhandled rejection
    for (const row of this.rows) {
      row.onError = (error) => this.fail(error);
      if (this.watched) row.onToken = (token) => this.#hear(token, options.count);
      else if (options.count !== undefined) row.onToken = options.count;
    }
  }

  #hear(token: Token, count: (() => void) | undefined): void {
    this.#tokens.push(token);
    this.#wake();
    count?.();
    try {
      this.request.onToken?.(token.sample, token.id, token.logprob);
    } catch (error) {
      this.fail(error);
    }
  }

  get cancelled(): boolean {
    return this.#cancelled || this.#signals.some((signal) => signal.aborted);
  }
  get settled(): boolean {
    return this.#settled;
  }

  cancel(): void {
    this.#cancelled = true;
  }

  /** Resolves with what was written, once none of its rows is in a slot. */
  settle(): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#done.resolve(this.rows.map((row) => row.result()));
    this.#wake();
  }

  fail(error: unknown): void {
    if (this.#settled) return;
    this.#settled = true;
    for (const row of this.rows) row.finish ??= 'cancelled';
    this.#done.reject(error);
    this.#wake();
  }

  #wake(): void {
    this.#heard?.resolve();
    this.#heard = undefined;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Token> {
    for await (const tokens of this.batches()) yield* tokens;
  }

  async *batches(): AsyncGenerator<readonly Token[]> {
    try {
      for (let next = 0; ; ) {
        if (next < this.#tokens.length) {
          const batch = this.#tokens.slice(next);
          next += batch.length;
          yield batch;
          continue;
        }
        if (this.#settled) break;
        this.#heard ??= Promise.withResolvers<void>();
        await this.#heard.promise;
      }
      await this.responses;
    } finally {
      this.cancel();
    }
  }
}
