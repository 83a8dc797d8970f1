/**
 * Scoring with a reward model: a head's outputs at chosen tokens of many sequences, without gradient.
 *
 *     headOutputs(model, [{ ids, places: [ids.length - 1] }]);      // [[0.37]]
 */
import { UserError } from '../errors.ts';
import { integers, noGrad, scope } from '../tensor/index.ts';
import { packSequences } from './decoder/batch.ts';
import { withFastProducts, withoutDropout } from './decoder/temporarily.ts';
import type { Model } from './model.ts';
import { checkPrecision, type Precision } from './precision.ts';

/** A sequence, and the places at which its head outputs are wanted. */
export interface ScoredSequence {
  ids: ArrayLike<number>;
  /** Positions of the tokens at which the head is applied. */
  places: readonly number[];
}

/** How much `headOutputs` sends through the model at once, and how exactly it computes. */
export interface HeadOutputOptions {
  /** Most tokens that go through the model at once; a single longer sequence goes alone. */
  tokenBudget?: number;
  /** `fast`: an H100 or H200 rounds the inputs of products of a model in 8 bits to 8 bits, too (docs/quantisation.md). */
  precision?: Precision;
}

/** The head's outputs at the chosen places of each sequence, one place after another. */
export function headOutputs(
  model: Model,
  sequences: readonly ScoredSequence[],
  { tokenBudget = 16384, precision = 'exact' }: HeadOutputOptions = {},
): Float32Array[] {
  const { head, decoder } = model;
  checkPrecision(precision);
  if (head === null) throw new UserError('This model has no head to score with; it is a language model only.');
  const results = new Array<Float32Array>(sequences.length);
  withoutDropout(decoder, () => {
    for (const batch of within(sequences, tokenBudget)) {
      const packed = batch.map((index) => sequences[index] as ScoredSequence);
      const values = scope(() =>
        noGrad(() => {
          const tokens = packSequences(
            packed.map(({ ids }) => ids),
            model.device,
          );
          const places = packed.flatMap((sequence, s) =>
            sequence.places.map((place) => (tokens.starts[s] as number) + place),
          );
          const rows = integers(places, { device: model.device });
          const states = () => decoder.forwardAt(tokens, rows);
          return head.forward(precision === 'fast' ? withFastProducts(decoder, states) : states()).numbers();
        }),
      );
      let at = 0;
      for (const [i, { places }] of packed.entries()) {
        const end = at + places.length * head.outputs;
        results[batch[i] as number] = Float32Array.from(values.slice(at, end));
        at = end;
      }
    }
  });
  return results;
}

/** Indices of the sequences, in batches that fit the budget. */
function within(sequences: readonly ScoredSequence[], budget: number): number[][] {
  const batches: number[][] = [];
  let tokens = Number.POSITIVE_INFINITY;
  for (const [index, { ids }] of sequences.entries()) {
    if (tokens + ids.length > budget) {
      batches.push([]);
      tokens = 0;
    }
    batches.at(-1)?.push(index);
    tokens += ids.length;
  }
  return batches;
}
