/** What goes into a sampler and what comes out: its options, requests, responses, counts and errors. */
import {
  above,
  anything,
  atLeast,
  call,
  checkArguments,
  filledText,
  flag,
  integer,
  list,
  oneOf,
  type Rule,
  signal,
  whole,
} from '../../arguments.ts';
import { AttuneError, checkNames, UserError } from '../../errors.ts';
import type { Progress } from '../../progress.ts';
import type { Tokenizer } from '../../text/index.ts';
import { type Precision, precisions } from '../precision.ts';
import { type CacheDtype, cacheDtypes } from './cache/cache.ts';
import { ruleOf, type SamplingOptions, type TokenLogprob } from './sampling.ts';

/** The size of the sampler's cache, its queue and its tokenizer. */
export interface SamplerOptions {
  /** How many sequences are written at the same time. */
  slots?: number;
  /** Most tokens per sequence, prompt included; by default what the requests need. */
  maxLength?: number;
  /**
   * Most bytes of the cache. Responses that do not fit wait. If those being written outgrow the cache, the youngest of
   * them wait and continue later, with the same tokens. By default there is room for all that are written at the same
   * time.
   */
  maxCacheBytes?: number;
  /** Needed for stop strings and for the responses' text. */
  tokenizer?: Tokenizer;
  /** Responses that may wait for a slot before `submit` refuses more; by default any number. */
  maxWaiting?: number;
  /**
   * Keeps finished sequences in the cache until their blocks are needed, so that a prompt with the same first tokens is not
   * computed again. Log-probs then agree with those of a fresh prompt to rounding. For chat and serving.
   */
  reusePrefixes?: boolean;
  /**
   * `exact` unless given: log-probs are those of scoring and training. `fast`: decoding from a quantised model rounds
   * activations to 8 bits per block, and the vocabulary's matrix to 8 bits per row, if that is faster (ARM CPUs);
   * otherwise it changes nothing. For text whose log-probs are not used in training.
   */
  precision?: Precision;
  /**
   * How the cache holds keys and values. `model` unless given: in the model's dtype. `int8`: in 8 bits with a bfloat16
   * scale for each head of a token, so that the cache has half the bytes of a 16-bit one (a quarter of a float32 one).
   * Prompts attend to their own keys and values unrounded. Tokens after them, and prompts whose beginning is in the
   * cache, attend to rounded ones, which changes their log-probs a little.
   */
  cacheDtype?: CacheDtype;
}

const optionRules: Record<keyof SamplerOptions, Rule> = {
  slots: whole(1),
  maxLength: whole(1),
  maxCacheBytes: above(0),
  tokenizer: anything,
  maxWaiting: atLeast(0),
  reusePrefixes: flag,
  precision: oneOf(precisions),
  cacheDtype: oneOf(cacheDtypes),
};

/** Refuses wrong options from a program. */
export function checkSamplerOptions(options: SamplerOptions): void {
  checkArguments('Sampler', options, optionRules);
  checkNames('Sampler', options, Object.keys(optionRules));
}

/** Refuses further responses if too many are waiting already. */
export function checkWaiting(responses: number, waiting: number, maxWaiting = Number.POSITIVE_INFINITY): void {
  if (responses > maxWaiting)
    throw new UserError(
      `${responses} responses at once are more than the ${maxWaiting} that may wait here. Ask for fewer at a time, or give the server a larger --max-queue (a sampler a larger maxWaiting).`,
    );
  if (waiting + responses > maxWaiting)
    throw new QueueFullError(
      `${waiting} responses wait for a slot already; this sampler lets at most ${maxWaiting} wait. Try again later.`,
    );
}

/** How `Sampler.generate` is cancelled and shows its progress. */
export interface GenerateOptions {
  signal?: AbortSignal;
  progress?: Progress;
}

/** Prompt tokens so far: computed, and reused from the cache. */
export interface PromptCounts {
  computed: number;
  reused: number;
}

/**
 * How full the cache is, in blocks of 64 tokens (in all, and held by sequences), and how often a sequence was preempted
 * so far.
 */
export interface CacheUse {
  blocks: number;
  used: number;
  preemptions: number;
}

/** A prompt as token ids, and how to sample responses to it. */
export interface GenerationRequest extends SamplingOptions {
  prompt: ArrayLike<number>;
  /**
   * How many responses to write; the prompt is read once for all of them. Response i has the seed `seed + i`, within
   * ±(2^53 − 1).
   */
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
  // −1, which configs write for no id, stops nothing.
  stopIds: list(integer),
  stopStrings: list(filledText),
  truncatedLogprobs: flag,
  allow: call,
  onToken: call,
  signal,
};

/** Refuses wrong requests from a program; prompts are ids of a vocabulary of this size. */
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
  /** The likeliest tokens at this position, if the request asks for them. */
  top?: TokenLogprob[];
}

/** One response: its tokens with their log-probs, and its text if the sampler has a tokenizer. */
export interface SampledResponse {
  /** The response's tokens, including the stop id that ended it, if any. */
  ids: number[];
  /** log π of each at the sampling temperature, over the whole vocabulary: what the trainer computes. */
  logprobs: Float32Array;
  finish: 'stop' | 'length' | 'cancelled';
  /** The response as text, cut before a stop string; only if the sampler has a tokenizer. */
  text?: string;
  /** Per token, the share of the probability mass that top-k, top-p and min-p cut off; only if they cut. */
  cutMass?: Float32Array;
  /** log π under the truncated, renormalised distribution that the token was drawn from; only if requested. */
  truncatedLogprobs?: Float32Array;
  /** Per token, the likeliest ones with their log-probs, best first; only if requested. */
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
