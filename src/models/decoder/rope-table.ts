/** Cosines and sines of the rotary angles, row by row. */
import { type RopePositions, ropeAngle, ropeFrequencies } from './rope.ts';

export interface RopeTable {
  cos: Float32Array;
  sin: Float32Array;
}

/** The table of one sequence of `count` tokens. */
export function ropeTable(positions: RopePositions, count: number): RopeTable {
  const { inverseFrequencies, attentionScale } = ropeFrequencies(positions, count);
  const half = inverseFrequencies.length;
  const cos = new Float32Array(count * half);
  const sin = new Float32Array(count * half);
  for (let position = 0; position < count; position++) {
    for (let i = 0; i < half; i++) {
      const angle = ropeAngle(position, inverseFrequencies[i] as number);
      cos[position * half + i] = Math.cos(angle) * attentionScale;
      sin[position * half + i] = Math.sin(angle) * attentionScale;
    }
  }
  return { cos, sin };
}

/** The rows for the tokens of a packed batch, each sequence by its own length (dynamic scaling). */
export function packedRopeTable(positions: RopePositions, starts: readonly number[]): RopeTable {
  const half = positions.rotaryDim / 2;
  const total = starts.at(-1) ?? 0;
  const table = { cos: new Float32Array(total * half), sin: new Float32Array(total * half) };
  for (let s = 0; s + 1 < starts.length; s++) {
    const start = starts[s] as number;
    const own = ropeTable(positions, (starts[s + 1] as number) - start);
    table.cos.set(own.cos, start * half);
    table.sin.set(own.sin, start * half);
  }
  return table;
}

/**
 * The table for decoding token by token. With dynamic scaling the angles depend on the sequence's length: a token gets
 * those of the sequence that ends with it. Earlier keys keep the angles they were cached with, as in transformers. So
 * past the original context a response's log-probs differ from those of one forward pass over the whole sequence.
 */
export function decodeRopeTable(positions: RopePositions, count: number): RopeTable {
  const table = ropeTable(positions, count);
  if (positions.scaling?.kind !== 'dynamic') return table;
  const half = positions.rotaryDim / 2;
  for (let position = 0; position < count; position++) {
    const { inverseFrequencies, attentionScale } = ropeFrequencies(positions, position + 1);
    for (let i = 0; i < half; i++) {
      const angle = ropeAngle(position, inverseFrequencies[i] as number);
      table.cos[position * half + i] = Math.cos(angle) * attentionScale;
      table.sin[position * half + i] = Math.sin(angle) * attentionScale;
    }
  }
  return table;
}

/** How many positions to make a table for: rounded up, so that it is rarely remade. */
export function ropeTableLength(needed: number, maxPositions: number): number {
  return Math.max(needed, Math.min(maxPositions, 2 ** Math.ceil(Math.log2(Math.max(needed, 256)))));
}
