/** POST /v1/chat/completions: whole or streamed, with log-probs, tools and JSON. */
import { randomUUID } from 'node:crypto';
import type { SampledResponse, Token, TokenLogprob } from '../models/index.ts';
import { StopText } from '../models/text/stop-text.ts';
import type { Tokenizer } from '../text/index.ts';
import type { EventStream } from './http.ts';
import type { ChatRequest } from './protocol.ts';
import type { ServedModel } from './registry.ts';
import { allowOf, chatPrompt, samplerRequest, stopsOf, submit } from './requests.ts';
import type { ToolFormat } from './tools.ts';

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

export const usageOf = (prompt: number, completion: number): Usage => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
});

interface Asked {
  served: ServedModel;
  request: ChatRequest;
  prompt: readonly number[];
  tools: ToolFormat | undefined;
  responses: ReturnType<typeof submit>;
  head: { id: string; created: number; model: string };
}

async function ask(served: ServedModel, request: ChatRequest, gone: AbortSignal): Promise<Asked> {
  const { prompt, tools, grammar } = await chatPrompt(served, request);
  const top = request.logprobs ? { topLogprobs: request.top_logprobs ?? 0 } : {};
  const asked = samplerRequest(served, prompt, request, { ...top, ...allowOf(served, grammar) });
  const head = { id: `chatcmpl-${randomUUID()}`, created: Math.floor(Date.now() / 1000), model: served.name };
  return { served, request, prompt, tools, responses: submit(served, asked, gone), head };
}

/** The complete response. */
export async function chatCompletion(served: ServedModel, request: ChatRequest, gone: AbortSignal) {
  const { prompt, tools, responses, head } = await ask(served, request, gone);
  const done = await responses.responses;
  const choices = done.map((response, index) => {
    const written = writtenText(served.tokenizer, response, tools);
    const { text, calls } = tools?.parse(written) ?? { text: written, calls: [] };
    return {
      index,
      message: {
        role: 'assistant',
        content: calls.length > 0 && text === '' ? null : text,
        refusal: null,
        ...(calls.length > 0 ? { tool_calls: calls } : {}),
      },
      logprobs: request.logprobs ? { content: contentLogprobs(served.tokenizer, response), refusal: null } : null,
      finish_reason: calls.length > 0 ? callsFinish(response.finish) : finishReason(response.finish),
    };
  });
  const written = done.reduce((sum, { ids }) => sum + ids.length, 0);
  return { ...head, object: 'chat.completion', choices, usage: usageOf(prompt.length, written) };
}

/** Streams the response as events. Text that may be the start of a tool call or of a stop text is held back. */
export async function streamChat(
  served: ServedModel,
  request: ChatRequest,
  gone: AbortSignal,
  open: () => EventStream,
): Promise<Usage> {
  const { prompt, tools, responses, head } = await ask(served, request, gone);
  const stream = open();
  const withUsage = request.stream_options?.include_usage === true;
  // Events differ only in their choice, so the rest is written once.
  const shell = JSON.stringify({ ...head, object: 'chat.completion.chunk', ...(withUsage ? { usage: null } : {}) });
  const chunk = (choice: object) => `${shell.slice(0, -1)},"choices":[${JSON.stringify(choice)}]}`;
  const samples = Array.from(
    { length: request.n ?? 1 },
    (_, index) => new StreamedChoice(served, request, tools, index),
  );
  await stream.send(
    samples.map(({ index }) =>
      chunk({ index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }),
    ),
  );
  for await (const tokens of responses.batches()) {
    stream.began();
    for (const token of tokens) samples[token.sample]?.push(token);
    await stream.send(samples.flatMap((sample) => sample.take()).map(chunk));
    if (!stream.open) break;
    await stream.turn(responses.responses);
  }
  const done = await responses.responses;
  const last = done.flatMap((response, index) => samples[index]?.end(response) ?? []).map(chunk);
  const usage = usageOf(
    prompt.length,
    done.reduce((sum, { ids }) => sum + ids.length, 0),
  );
  if (withUsage) last.push(JSON.stringify({ ...head, object: 'chat.completion.chunk', choices: [], usage }));
  stream.end(last);
  return usage;
}

class StreamedChoice {
  readonly index: number;
  readonly #served: ServedModel;
  readonly #request: ChatRequest;
  readonly #tools: ToolFormat | undefined;
  readonly #decoder: ReturnType<Tokenizer['stream']>;
  readonly #text: StopText;
  /** If tools may be called: text up to the first call. The rest is parsed at the end. */
  readonly #beforeCalls: StopText;
  /** What was written since the last event. */
  #content = '';
  #logprobs: object[] = [];

  constructor(served: ServedModel, request: ChatRequest, tools: ToolFormat | undefined, index: number) {
    this.index = index;
    this.#served = served;
    this.#request = request;
    this.#tools = tools;
    this.#decoder = served.tokenizer.stream({ skipSpecialTokens: tools === undefined });
    this.#text = new StopText(stopsOf(request));
    this.#beforeCalls = new StopText(tools === undefined ? [] : [tools.opening]);
  }

  push(token: Token): void {
    this.#content += this.#beforeCalls.push(this.#text.push(this.#written(token.id)));
    if (this.#request.logprobs)
      this.#logprobs.push(tokenLogprob(this.#served.tokenizer, token.id, token.logprob, token.top));
  }

  /** The choice of an event with the text since the last one; none if there is nothing to send. */
  take(): object[] {
    const [content, told] = [this.#content, this.#logprobs];
    if (content === '' && told.length === 0) return [];
    this.#content = '';
    this.#logprobs = [];
    const logprobs = this.#request.logprobs ? { content: told, refusal: null } : null;
    return [{ index: this.index, delta: content === '' ? {} : { content }, logprobs, finish_reason: null }];
  }

  end(response: SampledResponse): object[] {
    const written = writtenText(this.#served.tokenizer, response, this.#tools);
    const { calls } = this.#tools?.parse(written) ?? { calls: [] };
    const left = this.#beforeCalls.push(this.#text.push(this.#decoder.flush()) + this.#text.flush());
    const content = left + (calls.length > 0 ? '' : this.#rest(written));
    const choices = this.take();
    const part = (delta: object, finish: string | null = null) =>
      choices.push({ index: this.index, delta, logprobs: null, finish_reason: finish });
    if (content !== '') part({ content });
    for (const [index, call] of calls.entries()) part({ tool_calls: [{ index, ...call }] });
    part({}, calls.length > 0 ? callsFinish(response.finish) : finishReason(response.finish));
    return choices;
  }

  /** Text that was held back as the possible start of a call and turned out not to be one. */
  #rest(written: string): string {
    if (this.#tools === undefined || !this.#beforeCalls.stopped) return this.#beforeCalls.flush();
    return written.slice(written.indexOf(this.#tools.opening));
  }

  #written(id: number): string {
    return this.#served.tokenizer.eosIds.includes(id) ? '' : this.#decoder.push(id);
  }
}

/**
 * The response's text. If tools may be called it includes special tokens, because some families open a call with one.
 */
function writtenText(
  tokenizer: Tokenizer,
  { ids, text = '', finish }: SampledResponse,
  tools: ToolFormat | undefined,
): string {
  const cutByText = finish === 'stop' && !tokenizer.eosIds.includes(ids.at(-1) ?? -1);
  if (tools === undefined || cutByText) return text;
  return tokenizer.decode(ids.filter((id) => !tokenizer.eosIds.includes(id)));
}

/** A response that was cut at the token limit may lack calls; its finish reason tells the client. */
const callsFinish = (finish: SampledResponse['finish']): string => (finish === 'length' ? 'length' : 'tool_calls');

export const finishReason = (finish: SampledResponse['finish']): string => (finish === 'cancelled' ? 'stop' : finish);

function contentLogprobs(tokenizer: Tokenizer, response: SampledResponse) {
  return response.ids.map((id, i) =>
    tokenLogprob(tokenizer, id, response.logprobs[i] as number, response.topLogprobs?.[i]),
  );
}

/** A token in OpenAI's format; the bytes identify tokens that are half a character. */
function tokenLogprob(tokenizer: Tokenizer, id: number, logprob: number, top: readonly TokenLogprob[] = []) {
  const described = (each: number, value: number) => ({
    token: tokenizer.decode([each]),
    logprob: value,
    bytes: Array.from(tokenizer.tokenBytes(each) ?? []),
  });
  return { ...described(id, logprob), top_logprobs: top.map((each) => described(each.id, each.logprob)) };
}
