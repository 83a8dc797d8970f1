/** Cosines and sines of the rotary angles for the first `count` positions, row by row. */
import { type RopePositions, ropeAngle, ropeDependsOnLength, ropeFrequencies } from './rope.ts';

export interface RopeTable {
  cos: Float32Array;
  sin: Float32Array;
}

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

/** The rows of each token of a packed batch, every sequence by its own length (dynamic scaling). */
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

/** How many positions to make a table for: rounded up so that it is seldom made again, exact where the angles depend on the length. */
export function ropeTableLength(positions: RopePositions, needed: number, maxPositions: number): number {
  if (ropeDependsOnLength(positions))
    return Math.max(needed, positions.scaling?.kind === 'dynamic' ? positions.scaling.originalMax : 0);
  return Math.max(needed, Math.min(maxPositions, 2 ** Math.ceil(Math.log2(Math.max(needed, 256)))));
}
