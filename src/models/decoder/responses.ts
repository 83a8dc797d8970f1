/**
 * Packing prompts with responses, cutting them into micro-batches, and their log-probs.
 *
 *     responseLogprobs(decoder, [{ ids, promptLength: 12 }]);     // [Σ log π(response | prompt)]
 */
import { atLeast, checkArguments, type Rule, whole } from '../../arguments.ts';
import { UserError } from '../../errors.ts';
import { type Device, keep, noGrad, Stream, scope, type Tensor } from '../../tensor/index.ts';
import {
  type PackedBatch,
  type PromptedSequence,
  packShared,
  type Sharing,
  sharedKey,
  sharedLength,
  tokenIds,
} from './batch.ts';
import type { Decoder } from './decoder.ts';
import { tokenLogprobs } from './logprobs.ts';
import { withoutDropout } from './temporarily.ts';

/** A prompt followed by a response: token ids of which those from `promptLength` on are the response. */
export interface PromptedResponse extends PromptedSequence {
  /**
   * Where the response's own tokens are, [start, end, start, end, …] in `ids`, if other tokens stand between them (an
   * environment's output between two turns). The others are read like the prompt and have no log-probs.
   */
  spans?: ArrayLike<number>;
  /**
   * Where sequences begin in `ids` (the first at 0), if there are several that do not see one another: the
   * conversations of an agent. `spans` then gives its own tokens.
   */
  starts?: ArrayLike<number>;
}

/** The largest micro-batch: what goes through the model at once. */
export interface MicroBatchLimits {
  /** Most examples. */
  examples?: number;
  /** Most tokens; a single longer example goes alone. */
  tokens?: number;
}

/** Infinity is allowed. */
const limitRules: Record<keyof MicroBatchLimits, Rule> = { examples: atLeast(1), tokens: atLeast(1) };
const checkLimits = (limits: MicroBatchLimits) => checkArguments('The limits of a micro-batch', limits, limitRules);

function checkResponses(responses: readonly PromptedResponse[]): void {
  for (const response of responses) {
    checkArguments('A response', response, fields, required);
    checkSpans(response);
    checkStarts(response);
  }
}

const fields = { ids: tokenIds, promptLength: whole(0), spans: tokenIds, starts: tokenIds };
const required = ['ids', 'promptLength'];

/** Spans are in order and within the ids. */
function checkSpans({ ids, spans = [] }: PromptedResponse): void {
  let before = 0;
  for (let i = 0; i < spans.length; i++) {
    const place = spans[i] as number;
    if (place < before || place > ids.length || spans.length % 2 === 1)
      throw new UserError(
        `A response's spans are ${Array.from(spans).join(', ')}: expected [start, end, start, end, …] in its ${ids.length} ids.`,
      );
    before = place;
  }
}

/** Sequences are in order, and no span crosses from one into another. */
function checkStarts({ ids, spans, starts }: PromptedResponse): void {
  if (starts === undefined) return;
  const all = Array.from(starts);
  const isRising = all[0] === 0 && all.every((start, i) => i === 0 || start > (all[i - 1] as number));
  const places = Array.from(spans ?? []);
  const isCut = places.some((from, i) => i % 2 === 0 && all.some((at) => from < at && at < (places[i + 1] as number)));
  if (!isRising || (all.at(-1) as number) >= ids.length || spans === undefined || isCut)
    throw new UserError(
      `A response's sequences begin at ${all.join(', ')}: expected places from 0 on in its ${ids.length} ids, with spans within them.`,
    );
}

/**
 * The sequences of a response: the response itself, unless it has several. Tokens before a sequence's first span are
 * its prompt.
 */
function sequencesOf({ ids, promptLength, spans = [], starts }: PromptedResponse): PromptedSequence[] {
  if (starts === undefined) return [{ ids, promptLength }];
  return Array.from(starts, (start, i) => {
    const end = starts[i + 1] ?? ids.length;
    const first = Array.from(spans).find((place, at) => at % 2 === 0 && place >= start && place < end);
    return { ids: ids.slice(start, end), promptLength: (first ?? end) - start };
  });
}

/** Where the response's own tokens are. A sequence's very first token is left out, since nothing predicts it. */
function ownSpans({
  ids,
  promptLength,
  spans = [promptLength, ids.length],
  starts,
}: PromptedResponse): [number, number][] {
  const firsts = new Set(Array.from(starts ?? [0]));
  return Array.from({ length: spans.length / 2 }, (_, i) => {
    const [from, end] = [spans[2 * i] as number, spans[2 * i + 1] as number];
    const start = firsts.has(from) ? from + 1 : from;
    return [start, Math.max(start, end)];
  });
}

/** Cuts a list into consecutive micro-batches within the limits. */
export function microBatches<T>(items: readonly T[], limits: MicroBatchLimits, tokensOf: (item: T) => number): T[][] {
  checkLimits(limits);
  const { examples = Number.POSITIVE_INFINITY, tokens = Number.POSITIVE_INFINITY } = limits;
  const batches: T[][] = [];
  let room = 0;
  for (const item of items) {
    const size = tokensOf(item);
    const last = batches.at(-1);
    if (last === undefined || last.length >= examples || size > room) {
      batches.push([item]);
      room = tokens - size;
    } else {
      last.push(item);
      room -= size;
    }
  }
  return batches;
}

/**
 * Cuts responses into micro-batches within the limits, counting tokens as `packResponses` packs them. Neighbours with
 * the same prompt stay together if they fit.
 */
export function responseBatches<T extends PromptedResponse>(
  responses: readonly T[],
  limits: MicroBatchLimits,
  decoder: Sharing,
): T[][] {
  checkLimits(limits);
  checkResponses(responses);
  const tokensOf = (response: T) => response.ids.length;
  if (decoder.longestShared === 0) return microBatches(responses, limits, tokensOf);
  const { examples = Number.POSITIVE_INFINITY, tokens = Number.POSITIVE_INFINITY } = limits;
  const batches: T[][] = [];
  let room = 0;
  for (const group of promptRuns(responses, decoder)) {
    const shared = sharedLength(group[0] as T, decoder);
    const whole = group.reduce((sum, response) => sum + tokensOf(response) - shared, shared);
    let last = batches.at(-1);
    const joins = last !== undefined && last.length + group.length <= examples && whole <= room;
    if (!joins && group.length <= examples && whole <= tokens) last = undefined;
    for (const [i, response] of group.entries()) {
      let size = tokensOf(response) - (i === 0 ? 0 : shared);
      if (last === undefined || last.length >= examples || size > room) {
        last = [];
        batches.push(last);
        room = tokens;
        size = tokensOf(response);
      }
      last.push(response);
      room -= size;
    }
  }
  return batches;
}

/** How many tokens go through the model for these responses in one batch; a shared prompt counts once. */
export function packedTokens(responses: readonly PromptedResponse[], decoder: Sharing): number {
  const seen = new Set<string | symbol>();
  return responses.reduce((sum, response) => {
    const key = sharedKey(response, decoder);
    const known = seen.has(key);
    seen.add(key);
    return sum + response.ids.length - (known ? sharedLength(response, decoder) : 0);
  }, 0);
}

function promptRuns<T extends PromptedResponse>(responses: readonly T[], sharing: Sharing): T[][] {
  const runs: T[][] = [];
  let before: string | symbol | undefined;
  for (const response of responses) {
    const key = sharedKey(response, sharing);
    if (key === before) runs.at(-1)?.push(response);
    else runs.push([response]);
    before = key;
  }
  return runs;
}

/** Sequences laid end to end on the CPU, each with the length of its prompt. */
export interface SequencesWithPrompts {
  sequences: number;
  ids: Int32Array;
  cuSeqlens: Int32Array;
  promptLengths: ArrayLike<number>;
}

/** The sequences of such a batch one by one, as views of its ids. */
export function responsesOf(batch: SequencesWithPrompts): PromptedResponse[] {
  return Array.from({ length: batch.sequences }, (_, i) => ({
    ids: batch.ids.subarray(batch.cuSeqlens[i], batch.cuSeqlens[i + 1]),
    promptLength: batch.promptLengths[i] as number,
  }));
}

/** A batch of responses, and where their tokens are in it. */
export interface PackedResponses {
  batch: PackedBatch;
  /** Packed positions of all response tokens, for `tokenLogprobs`. */
  tokens: Int32Array;
  /**
   * Response tokens per sequence, only its own. A sequence's very first token is not counted, since nothing predicts
   * it.
   */
  lengths: number[];
}

/**
 * Packs responses into one batch. A prompt that several share goes through the decoder once, if the decoder supports
 * that.
 */
export function packResponses(responses: readonly PromptedResponse[], decoder: Sharing): PackedResponses {
  checkResponses(responses);
  const batch = packShared(responses.flatMap(sequencesOf), decoder);
  const own = responses.map(ownSpans);
  const lengths = own.map((spans) => spans.reduce((sum, [from, to]) => sum + to - from, 0));
  const tokens = new Int32Array(lengths.reduce((sum, length) => sum + length, 0));
  let [start, written] = [0, 0];
  for (const [i, { ids }] of responses.entries()) {
    for (const [from, to] of own[i] as [number, number][])
      for (let at = from; at < to; at++) tokens[written++] = batch.rows?.[start + at] ?? start + at;
    start += ids.length;
  }
  return { batch, tokens, lengths };
}

/** log π of every response token, from the hidden states of the whole batch. */
export function responseTokenLogprobs(decoder: Decoder, hidden: Tensor, { batch, tokens }: PackedResponses): Tensor {
  return tokenLogprobs(decoder, hidden, batch, tokens).logp;
}

/** Σ log π of each response, without gradient and without dropout. */
export function responseLogprobs(
  decoder: Decoder,
  responses: readonly PromptedResponse[],
  limits: MicroBatchLimits = { tokens: 8192 },
): number[] {
  return withoutDropout(decoder, () =>
    responseBatches(responses, limits, decoder).flatMap((part) => startedLogprobs(decoder, part).read()),
  );
}

/** Numbers that a device may still be computing. Call `read` or `drop` once. */
export interface Started<T> {
  read(): T;
  drop(): void;
}
/** Σ log π of responses. */
export type StartedLogprobs = Started<number[]>;

/**
 * Starts the same without waiting. On CUDA the numbers are read while later work runs: a training step's forward pass,
 * which the device would otherwise start only after the host has read them.
 */
export function startResponseLogprobs(
  decoder: Decoder,
  responses: readonly PromptedResponse[],
  limits: MicroBatchLimits,
): StartedLogprobs {
  const parts = withoutDropout(decoder, () =>
    responseBatches(responses, limits, decoder).map((part) => startedLogprobs(decoder, part)),
  );
  return {
    read: () => parts.flatMap((part) => part.read()),
    drop: () => {
      for (const part of parts) part.drop();
    },
  };
}

/** The log-probs of one batch. */
function startedLogprobs(decoder: Decoder, responses: readonly PromptedResponse[]): StartedLogprobs {
  const { lp, lengths } = scope(() =>
    noGrad(() => {
      const packed = packResponses(responses, decoder);
      const logp = responseTokenLogprobs(decoder, decoder.forward(packed.batch), packed);
      return { lp: readLater(logp), lengths: packed.lengths };
    }),
  );
  const sums = () => {
    const values = lp.read();
    let at = 0;
    return lengths.map((length) => {
      let sum = 0;
      for (const end = at + length; at < end; at++) sum += values[at] as number;
      return sum;
    });
  };
  return { read: sums, drop: lp.drop };
}

/**
 * Floats that are read while the device does the work queued after this call: float64 if they are float64, else
 * float32.
 */
export function readLater(values: Tensor): Started<Float32Array | Float64Array> {
  const kept = keep(values.to(values.dtype === 'float64' ? 'float64' : 'float32').detach());
  const stream = readingStream(values.device);
  stream?.follow();
  const read = () => kept.data() as Float32Array | Float64Array;
  return {
    read: () => {
      try {
        return stream === null ? read() : stream.read(read);
      } finally {
        kept.dispose();
      }
    },
    drop: () => kept.dispose(),
  };
}

const readingStreams = new Map<Device, Stream>();

/** The stream on which numbers are read while the device continues; null on the CPU, which computes at once. */
function readingStream(device: Device): Stream | null {
  if (!device.startsWith('cuda')) return null;
  const stream = readingStreams.get(device) ?? new Stream(device);
  readingStreams.set(device, stream);
  return stream;
}
