/** POST /v1/completions: continues a prompt. */
import { randomUUID } from 'node:crypto';
import type { SampledResponse, Token } from '../models/index.ts';
import { StopText } from '../models/text/stop-text.ts';
import type { Tokenizer } from '../text/index.ts';
import { finishReason, type Usage, usageOf } from './chat.ts';
import type { EventStream } from './http.ts';
import type { CompletionRequest } from './protocol.ts';
import type { ServedModel } from './registry.ts';
import { completionPrompts, samplerRequest, stopsOf, submit } from './requests.ts';

/** OpenAI's default for completions. */
const defaultTokens = 16;

async function ask(served: ServedModel, request: CompletionRequest, gone: AbortSignal) {
  const limited = { ...request, max_tokens: request.max_tokens ?? defaultTokens };
  const prompts = await completionPrompts(served, limited);
  const top = request.logprobs == null ? {} : { topLogprobs: request.logprobs };
  // All or none: if a list does not fit, none of it is written.
  const requests = prompts.map((prompt) => samplerRequest(served, prompt, limited, top));
  served.sampler.checkQueue(requests.length * (request.n ?? 1));
  const submissions = requests.map((each) => submit(served, each, gone));
  const head = {
    id: `cmpl-${randomUUID()}`,
    object: 'text_completion',
    created: Math.floor(Date.now() / 1000),
    model: served.name,
  };
  return { submissions, head, promptTokens: prompts.reduce((sum, { length }) => sum + length, 0) };
}

export async function completion(served: ServedModel, request: CompletionRequest, gone: AbortSignal) {
  const { submissions, head, promptTokens } = await ask(served, request, gone);
  const done = (await Promise.all(submissions.map(({ responses }) => responses))).flat();
  const choices = done.map((response, index) => ({
    index,
    text: response.text ?? '',
    logprobs: request.logprobs == null ? null : logprobsOf(served.tokenizer, tokensOf(response)),
    finish_reason: finishReason(response.finish),
  }));
  return {
    ...head,
    choices,
    usage: usageOf(
      promptTokens,
      done.reduce((sum, { ids }) => sum + ids.length, 0),
    ),
  };
}

export async function streamCompletion(
  served: ServedModel,
  request: CompletionRequest,
  gone: AbortSignal,
  open: () => EventStream,
): Promise<Usage> {
  const { submissions, head, promptTokens } = await ask(served, request, gone);
  const stream = open();
  const samples = request.n ?? 1;
  const event = (choice: object) => JSON.stringify({ ...head, choices: [choice] });
  const counts = await Promise.all(
    submissions.map(async (submission, prompt) => {
      const texts = Array.from(
        { length: samples },
        (_, sample) => new StreamedText(served.tokenizer, request, prompt * samples + sample),
      );
      for await (const tokens of submission.batches()) {
        stream.began();
        for (const token of tokens) texts[token.sample]?.push(token);
        await stream.send(texts.flatMap((text) => text.take()).map(event));
        if (!stream.open) break;
        await stream.turn(submission.responses);
      }
      const responses = await submission.responses;
      await stream.send(responses.flatMap(({ finish }, sample) => texts[sample]?.end(finish) ?? []).map(event));
      return responses.reduce((sum, { ids }) => sum + ids.length, 0);
    }),
  );
  const usage = usageOf(
    promptTokens,
    counts.reduce((sum, count) => sum + count, 0),
  );
  stream.end(request.stream_options?.include_usage ? [JSON.stringify({ ...head, choices: [], usage })] : []);
  return usage;
}

/** One text of a stream: what was written since its last event. */
class StreamedText {
  readonly #index: number;
  readonly #tokenizer: Tokenizer;
  readonly #decoder: ReturnType<Tokenizer['stream']>;
  readonly #stop: StopText;
  readonly #withLogprobs: boolean;
  #piece = '';
  #tokens: ToldToken[] = [];
  /** Characters of the tokens already sent. */
  #offset = 0;

  constructor(tokenizer: Tokenizer, request: CompletionRequest, index: number) {
    this.#index = index;
    this.#tokenizer = tokenizer;
    this.#decoder = tokenizer.stream({ skipSpecialTokens: true });
    this.#stop = new StopText(stopsOf(request));
    this.#withLogprobs = request.logprobs != null;
  }

  push(token: Token): void {
    this.#piece += this.#stop.push(this.#decoder.push(token.id));
    if (this.#withLogprobs) this.#tokens.push(token);
  }

  /** The choice of an event; none if there is nothing to send. */
  take(): object[] {
    return this.#piece === '' && this.#tokens.length === 0 ? [] : [this.#choice(null)];
  }

  end(finish: SampledResponse['finish']): object {
    this.#piece += this.#stop.push(this.#decoder.flush()) + this.#stop.flush();
    return this.#choice(finishReason(finish));
  }

  #choice(finish: string | null): object {
    const [text, tokens] = [this.#piece, this.#tokens];
    this.#piece = '';
    this.#tokens = [];
    const logprobs = tokens.length === 0 ? null : logprobsOf(this.#tokenizer, tokens, this.#offset);
    for (const token of logprobs?.tokens ?? []) this.#offset += token.length;
    return { index: this.#index, text, logprobs, finish_reason: finish };
  }
}

type ToldToken = Pick<Token, 'id' | 'logprob' | 'top'>;

const tokensOf = ({ ids, logprobs, topLogprobs }: SampledResponse): ToldToken[] =>
  ids.map((id, i) => ({
    ...{ id, logprob: logprobs[i] as number },
    ...(topLogprobs?.[i] === undefined ? {} : { top: topLogprobs[i] }),
  }));

/** Tokens in OpenAI's format for completions; the first is `offset` characters from the beginning. */
function logprobsOf(tokenizer: Tokenizer, told: readonly ToldToken[], offset = 0) {
  const tokens = told.map(({ id }) => tokenizer.decode([id]));
  let next = offset;
  return {
    tokens,
    token_logprobs: told.map(({ logprob }) => logprob),
    top_logprobs: told.flatMap(({ top }) =>
      top === undefined ? [] : [Object.fromEntries(top.map(({ id, logprob }) => [tokenizer.decode([id]), logprob]))],
    ),
    text_offset: tokens.map((token) => {
      const at = next;
      next += token.length;
      return at;
    }),
  };
}
