/**
 * Responses and their log-probs: the plumbing between tokens on disk and the losses on whole responses.
 *
 *     responseLogprobs(model, [{ ids, promptLength: 12 }]);     // [Σ log π(response | prompt)]
 */
import { segmentSum, segmentsOf } from '../algorithms/index.ts';
import type { Batch } from '../data/index.ts';
import { type Decoder, type Model, type PackedBatch, packSequences, tokenLogprobs } from '../models/index.ts';
import { noGrad, scope, type Tensor } from '../tensor/index.ts';

/** A prompt with a response to it; every token from `promptLength` on is the response's. */
export interface PromptedResponse {
  ids: Int32Array;
  promptLength: number;
}

/** The most that goes through the model at once. */
export interface MicroBatchLimits {
  /** Examples. */
  examples?: number;
  /** Tokens; one longer example goes alone. */
  tokens?: number;
}

/** Cuts a list into consecutive runs within the limits. */
export function microBatches<T>(items: readonly T[], limits: MicroBatchLimits, tokensOf: (item: T) => number): T[][] {
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

/** The sequences of a packed batch, one by one; views on its ids. */
export function responsesOf(batch: Batch): PromptedResponse[] {
  return Array.from({ length: batch.sequences }, (_, i) => ({
    ids: batch.ids.subarray(batch.cuSeqlens[i], batch.cuSeqlens[i + 1]),
    promptLength: batch.promptLengths[i] as number,
  }));
}

export interface PackedResponses {
  batch: PackedBatch;
  /** Places of all response tokens, as `tokenLogprobs` takes them. */
  tokens: number[];
  /** Response tokens of each sequence. A sequence's very first token is predicted by nothing and does not count. */
  lengths: number[];
}

export function packResponses(responses: readonly PromptedResponse[], device: Model['device']): PackedResponses {
  const batch = packSequences(
    responses.map(({ ids }) => ids),
    device,
  );
  const tokens: number[] = [];
  const lengths = responses.map(({ ids, promptLength }, i) => {
    const start = batch.starts[i] as number;
    const first = Math.max(1, promptLength);
    for (let at = first; at < ids.length; at++) tokens.push(start + at);
    return Math.max(0, ids.length - first);
  });
  return { batch, tokens, lengths };
}

/** log π of every response token, from the hidden states of the whole batch. */
export function responseTokenLogprobs(decoder: Decoder, hidden: Tensor, { batch, tokens }: PackedResponses): Tensor {
  return tokenLogprobs(decoder, hidden, batch, tokens).logp;
}

/** Σ log π of each response, without gradient and without dropout. */
export function responseLogprobs(
  model: Model,
  responses: readonly PromptedResponse[],
  limits: MicroBatchLimits = { tokens: 8192 },
): number[] {
  const wasTraining = model.decoder.training;
  model.train(false);
  try {
    return microBatches(responses, limits, ({ ids }) => ids.length).flatMap((part) =>
      scope(() =>
        noGrad(() => {
          const packed = packResponses(part, model.device);
          const lp = responseTokenLogprobs(model.decoder, model.decoder.forward(packed.batch), packed);
          return segmentSum(lp, segmentsOf(packed.lengths, lp)).numbers();
        }),
      ),
    );
  } finally {
    model.train(wasTraining);
  }
}
