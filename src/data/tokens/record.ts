/** One sequence of a tokenised example: its ids and where the loss is taken. */
export interface TokenSequence {
  ids: Int32Array;
  /** Tokens before the first one that carries loss. */
  promptLength: number;
  /** Where the loss is taken: [start, end, start, end, …]. */
  spans: Int32Array;
  /** Step labels: [position of the step's end token, label, …]. */
  marks: Int32Array;
}

/** A tokenised example. */
export interface TokenRecord {
  /** Two for a pair (chosen, rejected), one for everything else. */
  sequences: TokenSequence[];
  /** The number of its example in the dataset. */
  example: number;
  /** Whether the response is wanted or right (unpaired, graded). */
  label: boolean;
  margin: number;
  group: number;
  /** Index into the store's `sources`, −1 for none. */
  source: number;
}

const none = new Int32Array(0);

export function sequence(
  parts: readonly Int32Array[],
  spans: readonly number[],
  marks?: readonly number[],
): TokenSequence {
  const ids = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    ids.set(part, at);
    at += part.length;
  }
  const places = Int32Array.from(spans);
  return {
    ids,
    promptLength: places[0] ?? ids.length,
    spans: places,
    marks: marks === undefined ? none : Int32Array.from(marks),
  };
}

export function recordTokens(record: TokenRecord): number {
  return record.sequences.reduce((sum, { ids }) => sum + ids.length, 0);
}

const headerInts = 6;
const sequenceHeaderInts = 3;
const marginBits = new Float32Array(1);
const marginInts = new Int32Array(marginBits.buffer);

export function packRecord(record: TokenRecord): Int32Array {
  let length = headerInts;
  for (const { ids, spans, marks } of record.sequences)
    length += sequenceHeaderInts + ids.length + spans.length + marks.length;
  const ints = new Int32Array(length);
  marginBits[0] = record.margin;
  const { example, label, group, source } = record;
  ints.set([record.sequences.length, example, label ? 1 : 0, marginInts[0] as number, group, source]);
  let at = headerInts;
  for (const { ids, spans, marks } of record.sequences) {
    ints.set([ids.length, spans.length, marks.length], at);
    at += sequenceHeaderInts;
    for (const part of [ids, spans, marks]) {
      ints.set(part, at);
      at += part.length;
    }
  }
  return ints;
}

export function unpackRecord(ints: Int32Array): TokenRecord {
  const [count = 0, example = 0, label = 0, margin = 0, group = 0, source = -1] = ints.subarray(0, headerInts);
  marginInts[0] = margin;
  const sequences: TokenSequence[] = [];
  let at = headerInts;
  for (let i = 0; i < count; i++) {
    const [tokens = 0, spanInts = 0, markInts = 0] = ints.subarray(at, at + sequenceHeaderInts);
    at += sequenceHeaderInts;
    const ids = ints.subarray(at, at + tokens);
    const spans = ints.subarray(at + tokens, at + tokens + spanInts);
    at += tokens + spanInts + markInts;
    sequences.push({ ids, promptLength: spans[0] ?? tokens, spans, marks: ints.subarray(at - markInts, at) });
  }
  return { sequences, example, label: label === 1, margin: marginBits[0] as number, group, source };
}
