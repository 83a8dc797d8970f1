/** What is asked of the sampler and what it gives back. */
import { AttuneError } from '../../errors.ts';
import type { SamplingOptions, TokenLogprob } from './sampling.ts';

export interface GenerationRequest extends SamplingOptions {
  prompt: ArrayLike<number>;
  /** Responses to this prompt, which is read once for all of them; response i has the seed `seed + i`. */
  samples?: number;
  /** Cancels the request: it frees its slots, and its responses are what was written so far. */
  signal?: AbortSignal;
  /** Called for each token as it comes. */
  onToken?: (sample: number, id: number, logprob: number) => void;
  /** Whose request it is. Waiting requests are admitted in turn between clients. */
  client?: string;
  /** The adapter that writes the responses; null: the bare base. By default the one in use when the request is made. */
  adapter?: string | null;
}

/** A token of a response, as it comes. */
export interface Token {
  sample: number;
  id: number;
  logprob: number;
  /** The likeliest tokens here, where the request asks for them. */
  top?: TokenLogprob[];
}

/** One response. */
export interface Generation {
  /** The response's tokens, the stop id included where one ended it. */
  ids: number[];
  /** log π of each at the sampling temperature, over the whole vocabulary: what the trainer computes. */
  logprobs: Float32Array;
  finish: 'stop' | 'length' | 'cancelled';
  /** The response as text, cut before a stop string; only where the sampler has a tokenizer. */
  text?: string;
  /** Per token, the share of the probability mass that top-k, top-p and min-p cut off; only where they cut. */
  cutMass?: Float32Array;
  /** log π under the truncated, renormalised distribution that the token was drawn from; only where it is asked for. */
  truncatedLogprobs?: Float32Array;
  /** Per token, the likeliest ones with their log-probs, best first; only where they are asked for. */
  topLogprobs?: TokenLogprob[][];
}

/** More responses wait than the sampler's queue holds. */
export class QueueFullError extends AttuneError {
  override name = 'QueueFullError';
}

/** The sampler was disposed while a request was in it. */
export class SamplerDisposedError extends AttuneError {
  override name = 'SamplerDisposedError';
}

/** The model's weights changed while a request was being written: its cache holds the old weights' keys and values. */
export class WeightsChangedError extends AttuneError {
  override name = 'WeightsChangedError';
}
