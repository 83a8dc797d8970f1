/** What is asked of the sampler and what it gives back; the bookkeeping of one reply. */
import { UserError } from '../../errors.ts';
import type { Tokenizer } from '../../text/index.ts';
import { type Rule, ruleOf, type SamplingOptions } from './sampling.ts';

export interface GenerationRequest extends SamplingOptions {
  prompt: ArrayLike<number>;
  /** Replies to this prompt, which is read once for all of them; reply i has the seed `seed + i`. */
  samples?: number;
  signal?: AbortSignal;
  /** Called for each token as it comes. */
  onToken?: (sample: number, id: number, logprob: number) => void;
}

export interface Generation {
  /** The reply's tokens, the stop id included where one ended it. */
  ids: number[];
  /** log π of each at the sampling temperature, over the whole vocabulary: what the trainer computes. */
  logprobs: Float32Array;
  finish: 'stop' | 'length' | 'cancelled';
  /** The reply as text, cut before a stop string; only where the sampler has a tokenizer. */
  text?: string;
}

/** One reply while it is being written. */
export class Reply {
  readonly request: GenerationRequest;
  readonly sample: number;
  readonly rule: Rule;
  readonly seed: number;
  readonly ids: number[] = [];
  readonly #logprobs: number[] = [];
  readonly #stops: ReadonlySet<number>;
  readonly #tokenizer: Tokenizer | undefined;
  readonly #text: { push(id: number): string; flush(): string } | undefined;
  #written = '';
  #cutAt = -1;
  slot = -1;
  finish: Generation['finish'] | null = null;

  constructor(request: GenerationRequest, sample: number, tokenizer: Tokenizer | undefined) {
    this.request = request;
    this.sample = sample;
    this.rule = ruleOf(request);
    this.seed = (request.seed ?? 0) + sample;
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
  /** The place of the newest token in its sequence. */
  get position(): number {
    return this.promptLength + this.ids.length - 1;
  }
  get last(): number {
    return this.ids.at(-1) as number;
  }

  push(id: number, logprob: number): void {
    this.ids.push(id);
    this.#logprobs.push(logprob);
    if (this.#stops.has(id)) this.finish = 'stop';
    else if (this.ids.length >= this.request.maxNewTokens) this.finish = 'length';
    if (this.#text !== undefined) this.#lookForStop(this.#text.push(id));
    this.request.onToken?.(this.sample, id, logprob);
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

  /** Tokens after the one that ended it never were. */
  result(): Generation {
    const generation: Generation = {
      ids: this.ids,
      logprobs: Float32Array.from(this.#logprobs),
      finish: this.finish ?? 'cancelled',
    };
    if (this.#cutAt >= 0) generation.text = this.#written.slice(0, this.#cutAt);
    else if (this.#tokenizer !== undefined)
      generation.text = this.#tokenizer.decode(this.ids, { skipSpecialTokens: true });
    return generation;
  }
}
