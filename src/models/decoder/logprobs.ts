/**
 * Log-probabilities of given tokens, and the divergence of their distributions from a teacher's: every loss on a
 * language model starts here. Logits are computed for the requested rows only, and never all at once
 * (native/ops/linear_logprob.cc, native/ops/training/linear_divergence.cc).
 *
 *     const theirs = frozenRows(teacher.decoder, batch, tokens);
 *     const { divergence } = tokenDivergence({ decoder, rows }, { decoder: teacher.decoder, rows: theirs }, targets);
 */
import { type DivergenceOptions, integers, linearDivergence, noGrad, scope, type Tensor } from '../../tensor/index.ts';
import { type PackedBatch, rowsBefore } from './batch.ts';
import type { Decoder } from './decoder.ts';

/** Log-probabilities of given tokens, and the entropy of the distributions they were drawn from. */
export interface TokenLogprobs {
  /** log π of each requested token at the temperature, in packed order, [count]. */
  logp: Tensor;
  entropy: Tensor;
}

/** Packed positions of the tokens with a loss: those whose mask is 1, except each sequence's first token, which nothing predicts. */
export function scoredTokens(starts: readonly number[], mask: ArrayLike<number>): number[] {
  const rows: number[] = [];
  for (let s = 0; s + 1 < starts.length; s++) {
    for (let i = (starts[s] as number) + 1; i < (starts[s + 1] as number); i++) if (mask[i]) rows.push(i);
  }
  return rows;
}

/** log π and entropy of the tokens at the packed positions `tokens`. Each is predicted by the row of `hidden` before it (`rowsBefore`). */
export function tokenLogprobs(
  decoder: Decoder,
  hidden: Tensor,
  batch: PackedBatch,
  tokens: ArrayLike<number>,
  temperature = 1,
): TokenLogprobs {
  const targets = batch.ids.indexSelect(0, integers(Int32Array.from(tokens), { device: batch.ids.device }));
  return decoder.logprobs(rowsBefore(hidden, batch, tokens), targets, temperature);
}

/**
 * log π over the whole vocabulary in f32, [rows, vocabulary]. Call it for a slice of rows at a time, since all at once
 * are large.
 */
export function vocabularyLogprobs(decoder: Decoder, hidden: Tensor, temperature: number): Tensor {
  return decoder.logits(hidden).to('float32').div(temperature).logSoftmax(-1);
}

/** A decoder, and its final hidden states before each of some tokens, [tokens, hiddenSize]. */
export interface DecoderRows {
  decoder: Decoder;
  rows: Tensor;
}

/** All of them are [tokens]. */
export interface TokenDivergence {
  /** The KL, with its gradient for the student. */
  divergence: Tensor;
  /** The teacher's log-prob of each token, and 1 if it is the teacher's likeliest. */
  teacherLogp: Tensor;
  agrees: Tensor;
}

/** A frozen decoder's hidden states before the tokens at these packed positions. */
export function frozenRows(decoder: Decoder, batch: PackedBatch, tokens: ArrayLike<number>): Tensor {
  return scope(() => noGrad(() => rowsBefore(decoder.forward(batch), batch, tokens)));
}

/**
 * The divergence of each token's distribution from the teacher's; `targets` are the tokens' ids. A teacher's head may
 * be padded with rows that stand for no token: its distribution is then taken over the student's vocabulary.
 */
export function tokenDivergence(
  student: DecoderRows,
  teacher: DecoderRows,
  targets: Tensor,
  options: DivergenceOptions = {},
): TokenDivergence {
  const [own, theirs] = [student.decoder.headRows(student.rows), teacher.decoder.headRows(teacher.rows)];
  const size = own.weight.size(0);
  const weight = theirs.weight.size(0) > size ? theirs.weight.narrow(0, 0, size) : theirs.weight;
  return linearDivergence(own, { hidden: theirs.hidden, weight }, targets, options);
}
