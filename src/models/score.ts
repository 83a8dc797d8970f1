/**
 * Scoring with a reward model: a head's outputs at chosen tokens of many sequences, without gradient.
 *
 *     headOutputs(model, [{ ids, places: [ids.length - 1] }]);      // [[0.37]]
 */
import { anything, atLeast, checkArguments, list, oneOf } from '../arguments.ts';
import { UserError } from '../errors.ts';
import { integers, noGrad, scope } from '../tensor/index.ts';
import { type PackedBatch, packShared, tokenIds } from './decoder/batch.ts';
import { responseBatches } from './decoder/responses.ts';
import { withFastProducts, withoutDropout } from './decoder/temporarily.ts';
import type { Model } from './model.ts';
import { type Precision, precisions, scoresFast } from './precision.ts';

/** A sequence, and the places at which its head outputs are wanted. */
export interface ScoredSequence {
  ids: ArrayLike<number>;
  /** Positions of the tokens at which the head is applied. */
  places: readonly number[];
  /**
   * How many of its first tokens are the prompt's. Neighbours with the same prompt share one copy of it in the model.
   */
  promptLength?: number;
}

/** How much `headOutputs` sends through the model at once, and how exactly it computes. */
export interface HeadOutputOptions {
  /** Most tokens that go through the model at once; a single longer sequence goes alone. */
  tokenBudget?: number;
  /**
   * `fast`: for a model in 8 bits, an H100 or H200 also rounds the inputs of products to 8 bits (docs/quantisation.md).
   */
  precision?: Precision;
}

/** The head's outputs at the chosen places of each sequence, one place after another. */
export function headOutputs(
  model: Model,
  sequences: readonly ScoredSequence[],
  options: HeadOutputOptions = {},
): Float32Array[] {
  return [...headOutputBatches(model, sequences, options)].flat();
}

/** The results of `headOutputs`, batch by batch: between two batches a caller may do other work, or stop. */
export function* headOutputBatches(
  model: Model,
  sequences: readonly ScoredSequence[],
  { tokenBudget = 16384, precision = 'exact' }: HeadOutputOptions = {},
): Generator<Float32Array[]> {
  const { head, decoder } = model;
  checkArguments('headOutputs', { tokenBudget, precision }, { tokenBudget: atLeast(1), precision: oneOf(precisions) });
  const fast = precision === 'fast' && scoresFast(model);
  if (head === null) throw new UserError('This model has no head to score with; it is a language model only.');
  for (const sequence of sequences) checkPlaces(sequence);
  const prompted = sequences.map(({ ids, places, promptLength = 0 }) => ({
    ids: Int32Array.from(ids),
    places,
    promptLength,
  }));
  const outputsOf = (batch: typeof prompted) =>
    scope(() =>
      noGrad(() => {
        const tokens = packShared(batch, decoder);
        const rows = integers(placesIn(batch, tokens), { device: model.device });
        const states = () => decoder.forwardAt(tokens, rows);
        return head.forward(fast ? withFastProducts(decoder, states) : states()).numbers();
      }),
    );
  for (const batch of responseBatches(prompted, { tokens: tokenBudget }, decoder)) {
    const values = withoutDropout(decoder, () => outputsOf(batch));
    let at = 0;
    yield batch.map(({ places }) => {
      const start = at;
      at += places.length * head.outputs;
      return Float32Array.from(values.slice(start, at));
    });
  }
}

/** A place outside its sequence would be read from a neighbour's tokens. */
function checkPlaces(sequence: ScoredSequence): void {
  checkArguments('A sequence', sequence, { ids: tokenIds, places: list(anything) }, ['ids', 'places']);
  const { ids, places } = sequence;
  const wrong = places.find((place) => !Number.isInteger(place) || place < 0 || place >= ids.length);
  if (wrong !== undefined)
    throw new UserError(`places: ${wrong} is not the place of a token; the sequence has ${ids.length} (from 0).`);
}

/** The packed rows of all places. */
function placesIn(sequences: readonly ScoredSequence[], { rows }: PackedBatch): number[] {
  let start = 0;
  return sequences.flatMap(({ ids, places }) => {
    const first = start;
    start += ids.length;
    return places.map((place) => rows?.[first + place] ?? first + place);
  });
}
