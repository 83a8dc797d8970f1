/** One response while it is being written: a row of the batch, with its tokens, log-probs and slot. */
import { UserError } from '../../errors.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { GenerationRequest, SampledResponse, Token } from './request.ts';
import { type Rule, ruleOf, type TokenLogprob } from './sampling.ts';

/** `seed + sample`; past the largest integer that a double holds exactly, it wraps around to the smallest. */
function sampleSeed(seed: number, sample: number): number {
  const over = sample - (Number.MAX_SAFE_INTEGER - seed);
  return over > 0 ? Number.MIN_SAFE_INTEGER + over - 1 : seed + sample;
}

export class Row {
  readonly request: GenerationRequest;
  readonly sample: number;
  readonly rule: Rule;
  readonly seed: number;
  readonly ids: number[] = [];
  /** Called for each token. */
  onToken: ((token: Token) => void) | undefined;
  /** Called with an error thrown by a callback of its request. */
  onError: ((error: unknown) => void) | undefined;
  readonly #logprobs: number[] = [];
  readonly #kept: number[] = [];
  readonly #top: TokenLogprob[][] = [];
  readonly #stops: ReadonlySet<number>;
  readonly #tokenizer: Tokenizer | undefined;
  readonly #text: { push(id: number): string; flush(): string } | undefined;
  #written = '';
  #cutAt = -1;
  /** Its row of the cache's tables; −1 while it waits. */
  slot = -1;
  /** Its order of admission: the youngest row is preempted first. */
  order = 0;
  finish: SampledResponse['finish'] | null = null;

  constructor(request: GenerationRequest, sample: number, tokenizer: Tokenizer | undefined) {
    this.request = request;
    this.sample = sample;
    this.rule = ruleOf(request);
    this.seed = sampleSeed(request.seed ?? 0, sample);
    this.#stops = new Set(request.stopIds ?? []);
    this.#tokenizer = tokenizer;
    const stops = request.stopStrings ?? [];
    if (stops.length > 0 && tokenizer === undefined)
      throw new UserError('Stop strings need a sampler that was given a tokenizer.');
    this.#text = stops.length > 0 ? tokenizer?.stream() : undefined;
  }

  get promptLength(): number {
    return this.request.prompt.length;
  }
  /** Positions of the prompt and the longest response. */
  get mostPositions(): number {
    return this.promptLength + this.request.maxNewTokens;
  }
  /** The position of the newest token in its sequence. */
  get position(): number {
    return this.promptLength + this.ids.length - 1;
  }
  get last(): number {
    return this.ids.at(-1) as number;
  }
  /** Whether its logits are needed on the host: they are changed before the draw, or reported. */
  get needsLogits(): boolean {
    const { topLogprobs = 0, allow } = this.request;
    return this.rule.repetitionPenalty !== 1 || topLogprobs > 0 || allow !== undefined;
  }
  push(id: number, logprob: number, kept: number, top?: TokenLogprob[]): void {
    this.ids.push(id);
    this.#logprobs.push(logprob);
    this.#kept.push(kept);
    if (top !== undefined) this.#top.push(top);
    if (this.#stops.has(id)) this.finish = 'stop';
    else if (this.ids.length >= this.request.maxNewTokens) this.finish = 'length';
    if (this.#text !== undefined) this.#lookForStop(this.#text.push(id));
    this.onToken?.({ sample: this.sample, id, logprob, ...(top === undefined ? {} : { top }) });
  }

  #lookForStop(piece: string): void {
    const stops = this.request.stopStrings ?? [];
    const before = this.#written.length;
    this.#written += piece;
    const reach = Math.max(...stops.map((stop) => stop.length));
    const found = stops.map((stop) => this.#written.indexOf(stop, Math.max(0, before - reach))).filter((at) => at >= 0);
    if (found.length === 0) return;
    this.#cutAt = Math.min(...found);
    this.finish = 'stop';
  }

  /** A number for each token. */
  #ofEach(number: (logprob: number, kept: number) => number): Float32Array {
    const numbers = new Float32Array(this.ids.length);
    for (let i = 0; i < numbers.length; i++) numbers[i] = number(this.#logprobs[i] as number, this.#kept[i] as number);
    return numbers;
  }

  result(): SampledResponse {
    const { temperature, topK, topP, minP } = this.rule;
    const truncates = temperature > 0 && (topK > 0 || topP < 1 || minP > 0);
    const response: SampledResponse = {
      ids: this.ids,
      logprobs: Float32Array.from(this.#logprobs),
      finish: this.finish ?? 'cancelled',
    };
    if (truncates) response.cutMass = this.#ofEach((_, kept) => 1 - kept);
    if (this.request.truncatedLogprobs)
      response.truncatedLogprobs = this.#ofEach((logprob, kept) => logprob - Math.log(kept));
    if ((this.request.topLogprobs ?? 0) > 0) response.topLogprobs = this.#top;
    if (this.#cutAt >= 0) response.text = this.#written.slice(0, this.#cutAt);
    else if (this.#tokenizer !== undefined) giveText(response, this.#tokenizer);
    return response;
  }
}

/** The text is decoded when it is first read: training decodes responses while a device works. */
function giveText(response: SampledResponse, tokenizer: Tokenizer): void {
  let text: string | undefined;
  Object.defineProperty(response, 'text', {
    get: () => (text ??= tokenizer.decode(response.ids, { skipSpecialTokens: true })),
    enumerable: true,
  });
}
