/**
 * A step's rollouts in batches: minibatches for updates, micro-batches for memory, and forward passes without gradient.
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
 * Shuffles rollouts by the key and splits them into `count` parts of nearly equal size. A single part keeps the order.
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
 * Consecutive rollouts with at most this many tokens in total. Prompts count, once per group if the decoder shares
 * them.
 */
export const byTokens = (rollouts: readonly Rollout[], tokens: number, decoder: Sharing): Rollout[][] =>
  responseBatches(rollouts, { tokens }, decoder);

/** Drops episodes that failed before their first answer. They have no tokens of the policy to compute on. */
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

/** One entry per rollout, in order. */
export interface Scores {
  logprobs: Float32Array[];
  values?: Float32Array[];
}

/**
 * Log-probs of every rollout's response under a model, and V if there is a critic. Without gradient, as host arrays.
 */
export function scoreLogprobs(
  model: Model,
  critic: ValueModel | null,
  rollouts: readonly Rollout[],
  options: ScoreOptions,
): Scores {
  return startScores(model, critic, rollouts, options).read();
}

/** Starts `scoreLogprobs`. On CUDA the device computes while the host prepares the next work. */
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

/** Splits the numbers of all response tokens into one array per response. */
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
