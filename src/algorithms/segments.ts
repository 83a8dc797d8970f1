/**
 * Maps packed tokens to their responses. All per-token tensors of a micro-batch are [n]: the response tokens of its
 * sequences one after another, without padding.
 *
 *     const segments = segmentsOf([3, 5], lp);      // two responses, of 3 and 5 tokens
 *     segmentSum(lp, segments);                     // [2]: log-prob of each response
 */
import { AttuneError } from '../errors.ts';
import { aten, type Device, type DType, type Tensor, tensor, zeros } from '../tensor/index.ts';

/** Maps every packed token of a micro-batch to its response. */
export interface Segments {
  /** [n], int64: the index of each token's response. */
  readonly ids: Tensor;
  /** [count]: response lengths in the dtype of the log-probs, at least 1 so that a mean over nothing is 0. */
  readonly lengths: Tensor;
  readonly count: number;
  readonly tokens: number;
}

/** Segments from the token count of each response, with dtype and device of `like`, for example the log-probs. */
export function segmentsOf(lengths: ArrayLike<number>, like: { dtype: DType; device: Device }): Segments {
  let tokens = 0;
  for (let i = 0; i < lengths.length; i++) {
    const length = lengths[i] as number;
    if (!Number.isInteger(length) || length < 0) throw new AttuneError(`A response cannot have ${length} tokens.`);
    tokens += length;
  }
  const ids = new BigInt64Array(tokens);
  for (let i = 0, start = 0; i < lengths.length; i++) {
    const end = start + (lengths[i] as number);
    ids.fill(BigInt(i), start, end);
    start = end;
  }
  const atLeastOne = Float64Array.from(lengths, (length) => Math.max(1, length));
  return {
    ids: tensor(ids, { device: like.device }),
    lengths: tensor(atLeastOne, { dtype: like.dtype, device: like.device }),
    count: lengths.length,
    tokens,
  };
}

/** Sequence lengths from cumulative lengths: [0, 3, 8] → [3, 5]. */
export function lengthsOf(cuSeqlens: ArrayLike<number>): number[] {
  return Array.from(
    { length: cuSeqlens.length - 1 },
    (_, i) => (cuSeqlens[i + 1] as number) - (cuSeqlens[i] as number),
  );
}

/** Sums token values over each response: [n] → [count]. */
export function segmentSum(values: Tensor, segments: Segments): Tensor {
  return aten('index_add', zeros([segments.count], values), 0, segments.ids, values);
}

/** Averages token values over each response: [n] → [count]. */
export function segmentMean(values: Tensor, segments: Segments): Tensor {
  return segmentSum(values, segments).div(segments.lengths);
}

/** Repeats each response's value over its tokens: [count] → [n]. */
export function repeatOverTokens(perResponse: Tensor, segments: Segments): Tensor {
  return perResponse.indexSelect(0, segments.ids);
}
