/**
 * A step's rollouts as batches: minibatches for updates, micro-batches for memory, and forward passes without gradient.
 */

import type { Sharing } from '../models/decoder/batch.ts';
import {
  type PackedResponses,
  packResponses,
  readLater,
  responseBatches,
  type Started,
} from '../models/decoder/responses.ts';
import { type Model, tokenLogprobs } from '../models/index.ts';
import { Random } from '../random.ts';
import { noGrad, scope, type Tensor, tensor } from '../tensor/index.ts';
import type { Rollout } from './rollout.ts';

/**
 * Shuffles rollouts by the key and splits them into `count` parts of nearly equal size. With a count of 1 the order is
 * kept.
 */
export function minibatches<T>(rollouts: readonly T[], count: number, key: readonly (string | number)[]): T[][] {
  if (count === 1) return [[...rollouts]];
  const shuffled = new Random('minibatch', ...key).shuffle(rollouts);
  const parts = Math.min(count, shuffled.length);
  return Array.from({ length: parts }, (_, i) =>
    shuffled.slice(Math.floor((i * shuffled.length) / parts), Math.floor(((i + 1) * shuffled.length) / parts)),
  );
}

/**
 * Consecutive rollouts with at most this many tokens together. Prompts count, once each where the decoder shares them.
 */
export const byTokens = (rollouts: readonly Rollout[], tokens: number, decoder: Sharing): Rollout[][] =>
  responseBatches(rollouts, { tokens }, decoder);

/** An episode that failed before its first answer has no tokens of the policy: there is nothing to compute of it. */
export const withTokens = (rollouts: readonly Rollout[]): Rollout[] =>
  rollouts.filter(({ responseIds }) => responseIds.length > 0);

const nothing: Started<Float32Array> = { read: () => new Float32Array(), drop() {} };

/** A critic: gives V of every response token. */
export interface ValueModel {
  values(packed: PackedResponses, hidden: Tensor): Tensor;
}

export interface ScoreOptions {
  temperature: number;
  microBatchTokens: number;
}

/** Of each rollout, in their order. */
export interface Scores {
  logprobs: Float32Array[];
  values?: Float32Array[];
}

/**
 * Log-probs of every rollout's response under a model, and V if there is a critic; without gradient, as host arrays.
 */
export function scoreLogprobs(
  model: Model,
  critic: ValueModel | null,
  rollouts: readonly Rollout[],
  options: ScoreOptions,
): Scores {
  return startScores(model, critic, rollouts, options).read();
}

/** The same, started only: on CUDA the device computes while the host prepares what comes next. */
export function startScores(
  model: Model,
  critic: ValueModel | null,
  rollouts: readonly Rollout[],
  options: ScoreOptions,
): Started<Scores> {
  const parts = byTokens(rollouts, options.microBatchTokens, model.decoder).map((part) =>
    scope(() =>
      noGrad(() => {
        if (withTokens(part).length === 0) return { part, logp: nothing, value: critic === null ? null : nothing };
        const packed = packResponses(part, model.decoder);
        const hidden = model.decoder.forward(packed.batch);
        const { logp } = tokenLogprobs(model.decoder, hidden, packed.batch, packed.tokens, options.temperature);
        return {
          part,
          logp: readLater(logp),
          value: critic === null ? null : readLater(critic.values(packed, hidden)),
        };
      }),
    ),
  );
  return {
    read: () => ({
      logprobs: parts.flatMap(({ part, logp }) => ofEach(part, logp.read())),
      ...(critic === null ? {} : { values: parts.flatMap(({ part, value }) => ofEach(part, value?.read() ?? [])) }),
    }),
    drop: () => {
      for (const { logp, value } of parts) {
        logp.drop();
        value?.drop();
      }
    },
  };
}

/** Numbers of all response tokens as an array for each response. */
function ofEach(rollouts: readonly Rollout[], numbers: ArrayLike<number>): Float32Array[] {
  const all = numbers instanceof Float32Array ? numbers : Float32Array.from(numbers);
  let start = 0;
  return rollouts.map(({ responseIds }) => {
    const end = start + responseIds.length;
    const own = all.slice(start, end);
    start = end;
    return own;
  });
}

/** Packs a per-token array of every rollout into one tensor. */
export function packedTensor(
  rollouts: readonly Rollout[],
  pick: (rollout: Rollout) => ArrayLike<number> | undefined,
  like: Tensor,
): Tensor {
  const all = new Float32Array(rollouts.reduce((sum, { responseIds }) => sum + responseIds.length, 0));
  let at = 0;
  for (const rollout of rollouts) {
    all.set(pick(rollout) ?? [], at);
    at += rollout.responseIds.length;
  }
  return tensor(all, { dtype: like.dtype, device: like.device });
}
