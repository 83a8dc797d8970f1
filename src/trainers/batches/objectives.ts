/**
 * Objectives: a packed batch's share of the step's loss, from the model's hidden states. There is one per kind of
 * labelled text. Denominators cover the whole step, so the shares of its micro-batches add up to the step's loss.
 */
import {
  type LossResult,
  lengthsOf,
  type OutcomeTotals,
  outcomeRewardLoss,
  type PreferenceRewardOptions,
  preferenceRewardLoss,
  processRewardLoss,
  segmentsOf,
  sftLoss,
} from '../../algorithms/index.ts';
import type { Batch } from '../../data/index.ts';
import { AttuneError } from '../../errors.ts';
import { type Model, type PackedBatch, type ScoreHead, scoredTokens, tokenLogprobs } from '../../models/index.ts';
import { integers, type Tensor, tensor } from '../../tensor/index.ts';

export interface Objective<Totals> {
  /**
   * Whether a prompt shared by several sequences may be computed once. `loss` then finds its rows through
   * `packed.rows`.
   */
  sharesPrompts: boolean;
  totals(batches: readonly Batch[]): Totals;
  /** The number of decisions behind the accuracies. Omitted if the objective has none. */
  decisions?(totals: Totals): number;
  loss(hidden: Tensor, packed: PackedBatch, batch: Batch, totals: Totals): LossResult;
}

const sumOver = (batches: readonly Batch[], count: (batch: Batch) => number) =>
  batches.reduce((sum, batch) => sum + count(batch), 0);

export type SftObjective = Objective<{ tokens: number }>;

/** A loss over the trained tokens: those under the mask, or all. `lossOf` gets their packed positions. */
export function tokenObjective(
  allTokens: boolean,
  lossOf: (hidden: Tensor, packed: PackedBatch, tokens: number[], totals: { tokens: number }) => LossResult,
): SftObjective {
  const learnt = (batch: Batch) =>
    scoredTokens(Array.from(batch.cuSeqlens), allTokens ? new Uint8Array(batch.tokens).fill(1) : batch.lossMask);
  return {
    sharesPrompts: false,
    totals: (batches) => ({ tokens: sumOver(batches, (batch) => learnt(batch).length) }),
    loss: (hidden, packed, batch, totals) => lossOf(hidden, packed, learnt(batch), totals),
  };
}

/** Token-mean NLL. */
export function sftObjective(model: Model, { allTokens = false } = {}): SftObjective {
  return tokenObjective(allTokens, (hidden, packed, tokens, totals) => {
    const { logp, entropy } = tokenLogprobs(model.decoder, hidden, packed, tokens);
    return sftLoss({ lp: logp, entropy }, totals);
  });
}

/** Bradley–Terry loss on the head's score at the last token. Both responses of a pair are in the same batch. */
export function preferenceObjective(
  model: Model,
  options: PreferenceRewardOptions & { margin?: boolean },
): Objective<{ pairs: number }> {
  const { margin = false, ...shape } = options;
  return {
    sharesPrompts: true,
    totals: (batches) => ({ pairs: sumOver(batches, (batch) => batch.examples) }),
    decisions: ({ pairs }) => pairs,
    loss(hidden, packed, batch, totals) {
      const scores = headRows(model, hidden, packed, lastTokens(batch.cuSeqlens)).reshape(-1);
      const chosen = scores.narrow(0, 0, batch.examples);
      const rejected = scores.narrow(0, batch.examples, batch.examples);
      const given = margin ? { margin: tensor(batch.margins, { device: packed.ids.device }) } : {};
      return preferenceRewardLoss({ chosen, rejected, ...given }, totals, shape);
    },
  };
}

/** Binary cross-entropy of every response token against the response's correctness. */
export function outcomeObjective(model: Model): Objective<OutcomeTotals> {
  return {
    sharesPrompts: true,
    totals(batches) {
      const correct = sumOver(batches, (batch) => sumOfBytes(batch.labels));
      const tokens = sumOver(batches, (batch) => sumOfBytes(batch.lossMask));
      return { tokens, correct, incorrect: sumOver(batches, (batch) => batch.examples) - correct };
    },
    decisions: ({ correct, incorrect }) => correct + incorrect,
    loss(hidden, packed, batch, totals) {
      const places = placesOfOnes(batch.lossMask);
      const logits = headRows(model, hidden, packed, places).reshape(-1);
      const lengths = lengthsOf(batch.cuSeqlens).map((_, s) => responseLength(batch, s));
      const correct = tensor(Float32Array.from(batch.labels), { device: logits.device });
      return outcomeRewardLoss({ logits, correct, segments: segmentsOf(lengths, logits) }, totals);
    },
  };
}

/** Three-class cross-entropy at the end of each labelled step. */
export function processObjective(model: Model): Objective<{ steps: number }> {
  return {
    sharesPrompts: true,
    totals: (batches) => ({ steps: sumOver(batches, (batch) => batch.stepPositions.length) }),
    decisions: ({ steps }) => steps,
    loss(hidden, packed, batch, totals) {
      const logits = headRows(model, hidden, packed, batch.stepPositions);
      const labels = integers(batch.stepLabels, { device: packed.ids.device });
      const { loss, metrics } = processRewardLoss({ logits, labels }, totals);
      return { loss, metrics: { ...metrics, accuracy: metrics.step_accuracy as Tensor } };
    },
  };
}

/** The last token of each sequence. */
export function lastTokens(cuSeqlens: ArrayLike<number>): number[] {
  return Array.from({ length: cuSeqlens.length - 1 }, (_, s) => (cuSeqlens[s + 1] as number) - 1);
}

/** The head's outputs [tokens, outputs] at the given packed positions. */
function headRows(model: Model, hidden: Tensor, { rows }: PackedBatch, places: ArrayLike<number>): Tensor {
  const laid = rows === undefined ? places : Array.from(places, (place) => rows[place] as number);
  return headOf(model).forward(hidden.indexSelect(0, integers(laid, { device: hidden.device })));
}

function headOf(model: Model): ScoreHead {
  if (model.head === null) throw new AttuneError('A reward model needs a head before it can be trained.');
  return model.head;
}

function placesOfOnes(mask: Uint8Array): number[] {
  const places: number[] = [];
  for (let i = 0; i < mask.length; i++) if (mask[i]) places.push(i);
  return places;
}

function responseLength(batch: Batch, sequence: number): number {
  return sumOfBytes(batch.lossMask.subarray(batch.cuSeqlens[sequence], batch.cuSeqlens[sequence + 1]));
}

function sumOfBytes(bytes: Uint8Array): number {
  let sum = 0;
  for (const byte of bytes) sum += byte;
  return sum;
}
