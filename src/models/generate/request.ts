/** Requests to the sampler, its responses and its errors. */
import { call, checkArguments, filledText, flag, integer, list, type Rule, signal, whole } from '../../arguments.ts';
import { AttuneError, UserError } from '../../errors.ts';
import { ruleOf, type SamplingOptions, type TokenLogprob } from './sampling.ts';

/** A prompt as token ids, and how to sample responses to it. */
export interface GenerationRequest extends SamplingOptions {
  prompt: ArrayLike<number>;
  /** How many responses to write; the prompt is read once for all. Response i has the seed `seed + i`. */
  samples?: number;
  /** Cancels the request: its slots are freed, and its responses hold what was written so far. */
  signal?: AbortSignal;
  /** Called for each token as it is written. */
  onToken?: (sample: number, id: number, logprob: number) => void;
  /** Who sent the request: waiting clients are served in turn. */
  client?: string;
  /** The adapter to use; null for the bare base. By default the one that is active when the request is made. */
  adapter?: string | null;
}

const rules: Record<string, Rule> = {
  maxNewTokens: whole(1),
  samples: whole(1),
  seed: integer,
  stopIds: list(whole(0)),
  stopStrings: list(filledText),
  truncatedLogprobs: flag,
  allow: call,
  onToken: call,
  signal,
};

/** Refuses what a program got wrong; prompts are ids of a vocabulary of this size. */
export function checkRequests(requests: readonly GenerationRequest[], vocabSize: number): void {
  if (!Array.isArray(requests)) throw new UserError('The sampler takes a list of requests.');
  const prompt = list(whole(0, vocabSize - 1));
  for (const request of requests) {
    checkArguments('A request to the sampler', request, { prompt, ...rules }, ['prompt', 'maxNewTokens']);
    ruleOf(request);
  }
}

/** A token of a response, as it is written. */
export interface Token {
  sample: number;
  id: number;
  logprob: number;
  /** The likeliest tokens at this position, where the request asks for them. */
  top?: TokenLogprob[];
}

/** One response: its tokens with their log-probs, and its text where the sampler has a tokenizer. */
export interface SampledResponse {
  /** The response's tokens, with the stop id that ended it, if any. */
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

/** A request was refused because the sampler's queue is full (`maxWaiting`). */
export class QueueFullError extends AttuneError {
  override name = 'QueueFullError';
}

/** The sampler was disposed before the request was done. */
export class SamplerDisposedError extends AttuneError {
  override name = 'SamplerDisposedError';
}

/** The model's weights changed during a request, so that its cached keys and values no longer fit them. */
export class WeightsChangedError extends AttuneError {
  override name = 'WeightsChangedError';
}
