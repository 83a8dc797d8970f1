/**
 * Text in, text out: a model with its tokenizer and sampler, for programs that do not deal with token ids.
 *
 *     using model = await LanguageModel.open('Qwen/Qwen3-0.6B');
 *     const { text } = await model.generate({ messages: [{ role: 'user', content: 'Why is the sky blue?' }] });
 *     for await (const piece of model.stream({ prompt: 'Once upon a time' })) process.stdout.write(piece);
 */
import {
  above,
  anything,
  atLeast,
  checkArguments,
  either,
  filledText,
  integer,
  list,
  type Rule,
  share,
  signal,
  text,
  whole,
} from '../../arguments.ts';
import { checkNames, UserError } from '../../errors.ts';
import type { ResolveOptions } from '../../hub/hub.ts';
import { ChatFormat, type Message, type Tokenizer } from '../../text/index.ts';
import type { LoadOptions } from '../files/decoder.ts';
import { loadModel } from '../files/load.ts';
import { loadTokenizer } from '../files/tokenizer.ts';
import type { SampledResponse, SamplerOptions } from '../generate/request.ts';
import { Sampler } from '../generate/sampler.ts';
import type { Model } from '../model.ts';
import { StopText } from './stop-text.ts';

/** A prompt or a conversation, and how to continue it. */
export interface TextRequest {
  /** Text to continue unchanged. */
  prompt?: string;
  /** A conversation, rendered with the model's chat template. */
  messages?: readonly Message[];
  /** 256 unless given. */
  maxNewTokens?: number;
  /** 0 takes the likeliest token each time; 1 unless given. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  /** Texts that end the response, which is cut before them. */
  stop?: string | readonly string[];
  /** The same seed gives the same text. */
  seed?: number;
  signal?: AbortSignal;
}

const STREAM_RULES: Record<keyof TextRequest, Rule> = {
  prompt: text,
  messages: list(anything),
  maxNewTokens: whole(1),
  temperature: atLeast(0),
  topK: whole(0),
  topP: above(0, 1),
  minP: share,
  repetitionPenalty: above(0),
  stop: either(filledText, list(filledText)),
  seed: integer,
  signal,
};
const GENERATE_RULES = { ...STREAM_RULES, samples: whole(1) };

function checkRequest(name: string, request: object, rules: Record<string, Rule>, required: string[] = []): void {
  checkArguments(name, request, rules, required);
  checkNames(name, request, Object.keys(rules));
}

/** One response: its text, its tokens with their log-probs, and why it ended. */
export interface TextResponse {
  text: string;
  /** `stop`: it ended by itself or at a stop text. `length`: it was cut at `maxNewTokens`. `cancelled`: its signal was aborted. */
  finish: 'stop' | 'length' | 'cancelled';
  /** The response's tokens, and log π of each at the sampling temperature. */
  ids: readonly number[];
  logprobs: Float32Array;
  promptTokens: number;
}

/** The `SamplerOptions` that are useful for a conversation. */
type WritingOptions = Pick<SamplerOptions, 'reusePrefixes' | 'precision' | 'cacheDtype'>;

/** A model with its tokenizer and sampler: text in, text out. */
export class LanguageModel {
  readonly model: Model;
  readonly tokenizer: Tokenizer;
  readonly #sampler: Sampler;
  readonly #format: ChatFormat;
  readonly #owned: boolean;

  /** Wraps a model that is already loaded; disposing this does not free it, unless it is `owned`. */
  constructor(model: Model, tokenizer: Tokenizer, options: { owned?: boolean } & WritingOptions = {}) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.#sampler = new Sampler(model, {
      tokenizer,
      slots: options.reusePrefixes ? 4 : undefined,
      reusePrefixes: options.reusePrefixes,
      ...(options.precision === undefined ? {} : { precision: options.precision }),
      ...(options.cacheDtype === undefined ? {} : { cacheDtype: options.cacheDtype }),
    });
    this.#format = new ChatFormat(tokenizer);
    this.#owned = options.owned ?? false;
  }

  /** Loads a model with its tokenizer: from a folder (also a run's or an adapter's) or by its name on the hub. */
  static async open(name: string, options: LoadOptions & ResolveOptions & WritingOptions = {}): Promise<LanguageModel> {
    const { reusePrefixes = false, precision = 'exact', cacheDtype = 'model', ...loading } = options;
    const tokenizer = await loadTokenizer(name, options.progress);
    const writing = { reusePrefixes, precision, cacheDtype };
    return new LanguageModel(await loadModel(name, loading), tokenizer, { owned: true, ...writing });
  }

  /** Writes one response or, with `samples`, several; response i has the seed `seed + i`. */
  generate(request: TextRequest & { samples: number }): Promise<TextResponse[]>;
  generate(request: TextRequest): Promise<TextResponse>;
  async generate(request: TextRequest & { samples?: number }): Promise<TextResponse | TextResponse[]> {
    checkRequest('generate', request, GENERATE_RULES);
    const prompt = this.promptIds(request);
    const [responses = []] = await this.#sampler.generate([this.#asked(request, prompt)], { signal: request.signal });
    const texts = responses.map((response) => this.#textOf(response, prompt.length));
    return request.samples === undefined ? (texts[0] as TextResponse) : texts;
  }

  /** Yields the response piece by piece as it is written, and returns the whole. Leaving the loop stops the generation. */
  async *stream(request: TextRequest): AsyncGenerator<string, TextResponse, void> {
    checkRequest('stream', request, STREAM_RULES);
    const prompt = this.promptIds(request);
    const asked = this.#asked(request, prompt);
    const submission = this.#sampler.submit({ ...asked, signal: request.signal });
    const decoder = this.tokenizer.stream({ skipSpecialTokens: true });
    const text = new StopText(asked.stopStrings);
    for await (const { id } of submission) {
      const piece = text.push(decoder.push(id));
      if (piece !== '') yield piece;
    }
    const [response] = await submission.responses;
    const rest = text.push(decoder.flush()) + text.flush();
    if (rest !== '') yield rest;
    return this.#textOf(response as SampledResponse, prompt.length);
  }

  /** The token ids of a request, as the model reads them. */
  promptIds({ prompt, messages }: Pick<TextRequest, 'prompt' | 'messages'>): number[] {
    if ((prompt === undefined) === (messages === undefined))
      throw new UserError('Give either a `prompt` (text to continue) or `messages` (a conversation).');
    if (messages?.length === 0) throw new UserError('A conversation needs at least one message.');
    if (prompt !== undefined) return Array.from(this.tokenizer.encode(prompt, { addSpecialTokens: true }));
    const text = this.#format.prompt(messages as readonly Message[]);
    return [...this.#format.bos, ...this.tokenizer.encode(text)];
  }

  dispose(): void {
    this.#sampler.dispose();
    if (this.#owned) this.model.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }

  #asked(request: TextRequest & { samples?: number }, prompt: readonly number[]) {
    const { prompt: _, messages: __, signal: ___, stop = [], maxNewTokens = 256, temperature = 1, ...rest } = request;
    return {
      ...rest,
      prompt,
      maxNewTokens,
      temperature,
      stopStrings: [stop].flat(),
      stopIds: this.tokenizer.eosIds,
    };
  }

  #textOf({ ids, logprobs, finish, text = '' }: SampledResponse, promptTokens: number): TextResponse {
    return { text, finish, ids, logprobs, promptTokens };
  }
}

const languageModel: Rule = {
  fits: (value) => typeof value === 'string' || value instanceof LanguageModel,
  wanted: 'a folder, a name on the hub or a LanguageModel',
};

/**
 * Text in, text out in one call: loads a model (or takes a loaded one), generates, and frees what it loaded.
 *
 *     const { text } = await generate({ model: 'models/tiny', messages: [{ role: 'user', content: 'What is 4 + 5?' }] });
 */
export function generate(
  request: TextRequest & { model: string | LanguageModel; samples: number },
): Promise<TextResponse[]>;
export function generate(request: TextRequest & { model: string | LanguageModel }): Promise<TextResponse>;
export async function generate(
  given: TextRequest & { model: string | LanguageModel; samples?: number },
): Promise<TextResponse | TextResponse[]> {
  checkRequest('generate', given, { model: languageModel, ...GENERATE_RULES }, ['model']); // before a model is loaded
  const { model, ...request } = given;
  if (typeof model !== 'string') return model.generate(request);
  using opened = await LanguageModel.open(model);
  return await opened.generate(request);
}

/** As `generate`, piece by piece: `for await (const piece of stream({ model, prompt }))`. */
export async function* stream(
  given: TextRequest & { model: string | LanguageModel },
): AsyncGenerator<string, TextResponse, void> {
  checkRequest('stream', given, { model: languageModel, ...STREAM_RULES }, ['model']);
  const { model, ...request } = given;
  if (typeof model !== 'string') return yield* model.stream(request);
  using opened = await LanguageModel.open(model);
  return yield* opened.stream(request);
}
