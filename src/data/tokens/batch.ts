/**
 * A packed batch as plain arrays: sequences one after another, without padding.
 *
 * A batch of pairs holds all chosen sequences, then all rejected ones: sequences `i` and `examples + i` have the same
 * prompt.
 */
import type { TokenRecord } from './record.ts';

/** A packed batch as plain arrays. */
export interface Batch {
  /** Examples (pairs, conversations, …) in the batch, and sequences: twice as many for pairs. */
  examples: number;
  sequences: number;
  tokens: number;
  ids: Int32Array;
  /** Position of each token in its own sequence. */
  positions: Int32Array;
  /** Sequence `s` is ids[cuSeqlens[s] … cuSeqlens[s + 1]). */
  cuSeqlens: Int32Array;
  /** 1 for a token to be predicted: the response, the assistant's turns, or everything in plain text. */
  lossMask: Uint8Array;
  /** Tokens of each sequence before the first one with loss. */
  promptLengths: Int32Array;
  /** Index in `ids` of each labelled step's end, and its label (−1, 0, 1). */
  stepPositions: Int32Array;
  stepLabels: Int32Array;
  /** One value per example. `labels` is 1 if the response is wanted or right. */
  labels: Uint8Array;
  margins: Float32Array;
  groups: Int32Array;
  /** Index into the store's `sources`, or −1. */
  sources: Int32Array;
  /** The number of each example in the dataset. */
  exampleIndices: Int32Array;
}

/** Packs token records into one batch. */
export function packBatch(records: readonly TokenRecord[]): Batch {
  const sides = records[0]?.sequences.length ?? 0;
  const laid = Array.from({ length: sides }, (_, side) => side).flatMap((side) =>
    records.map((record) => record.sequences[side] as TokenRecord['sequences'][number]),
  );
  const tokens = laid.reduce((sum, { ids }) => sum + ids.length, 0);
  const batch: Batch = {
    examples: records.length,
    sequences: laid.length,
    tokens,
    ids: new Int32Array(tokens),
    positions: new Int32Array(tokens),
    cuSeqlens: new Int32Array(laid.length + 1),
    lossMask: new Uint8Array(tokens),
    promptLengths: Int32Array.from(laid, ({ promptLength }) => promptLength),
    stepPositions: new Int32Array(laid.reduce((sum, { marks }) => sum + marks.length / 2, 0)),
    stepLabels: new Int32Array(laid.reduce((sum, { marks }) => sum + marks.length / 2, 0)),
    labels: Uint8Array.from(records, ({ label }) => (label ? 1 : 0)),
    margins: Float32Array.from(records, ({ margin }) => margin),
    groups: Int32Array.from(records, ({ group }) => group),
    sources: Int32Array.from(records, ({ source }) => source),
    exampleIndices: Int32Array.from(records, ({ example }) => example),
  };
  let at = 0;
  let step = 0;
  for (const [index, { ids, spans, marks }] of laid.entries()) {
    batch.ids.set(ids, at);
    for (let i = 0; i < ids.length; i++) batch.positions[at + i] = i;
    for (let i = 0; i < spans.length; i += 2) {
      batch.lossMask.fill(1, at + (spans[i] as number), at + Math.min(spans[i + 1] as number, ids.length));
    }
    for (let i = 0; i < marks.length; i += 2) {
      batch.stepPositions[step] = at + (marks[i] as number);
      batch.stepLabels[step++] = marks[i + 1] as number;
    }
    at += ids.length;
    batch.cuSeqlens[index + 1] = at;
  }
  return batch;
}

/** The records that a batch was packed from. */
export function recordsOf(batch: Batch): TokenRecord[] {
  const { examples, sequences } = batch;
  return Array.from({ length: examples }, (_, i) => ({
    sequences: Array.from({ length: sequences / examples }, (_, side) => sequenceOf(batch, side * examples + i)),
    example: batch.exampleIndices[i] as number,
    label: batch.labels[i] === 1,
    margin: batch.margins[i] as number,
    group: batch.groups[i] as number,
    source: batch.sources[i] as number,
  }));
}

function sequenceOf(batch: Batch, index: number): TokenRecord['sequences'][number] {
  const [begin, end] = [batch.cuSeqlens[index] as number, batch.cuSeqlens[index + 1] as number];
  const mask = batch.lossMask.subarray(begin, end);
  const spans: number[] = [];
  for (let i = 0; i <= mask.length; i++) if ((mask[i] ?? 0) !== (mask[i - 1] ?? 0)) spans.push(i);
  const marks: number[] = [];
  for (const [step, position] of batch.stepPositions.entries())
    if (position >= begin && position < end) marks.push(position - begin, batch.stepLabels[step] as number);
  return {
    ids: batch.ids.subarray(begin, end),
    promptLength: batch.promptLengths[index] as number,
    spans: Int32Array.from(spans),
    marks: Int32Array.from(marks),
  };
}
