/**
 * Log-probabilities of the tokens that are there: what every loss on a language model starts from. Only the rows that are
 * asked for go through the vocabulary, and never all logits at once (native/ops/linear_logprob.cc).
 */
import { integers, type Tensor } from '../../tensor/index.ts';
import type { PackedBatch } from './batch.ts';
import type { Decoder } from './decoder.ts';

export interface TokenLogprobs {
  /** log π of each asked-for token at the temperature, in packed order, [count]. */
  logp: Tensor;
  entropy: Tensor;
}

/** Positions (in the packed order) of the tokens that carry a loss: those whose mask is 1, except a sequence's first token, which nothing predicts. */
export function scoredTokens(starts: readonly number[], mask: ArrayLike<number>): number[] {
  const rows: number[] = [];
  for (let s = 0; s + 1 < starts.length; s++) {
    for (let i = (starts[s] as number) + 1; i < (starts[s + 1] as number); i++) if (mask[i]) rows.push(i);
  }
  return rows;
}

/** `hidden` of the whole batch; `tokens` from `scoredTokens`: the token at i is predicted by the row before it. */
export function tokenLogprobs(
  decoder: Decoder,
  hidden: Tensor,
  batch: PackedBatch,
  tokens: readonly number[],
  temperature = 1,
): TokenLogprobs {
  const device = batch.ids.device;
  const at = (offset: number) =>
    integers(
      tokens.map((token) => token + offset),
      { device },
    );
  const rows = hidden.indexSelect(0, at(-1));
  const targets = batch.ids.indexSelect(0, at(0));
  return decoder.logprobs(rows, targets, temperature);
}
