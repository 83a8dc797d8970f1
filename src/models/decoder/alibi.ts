/**
 * Attention with linear biases (Press et al. 2022, arXiv:2108.12409). The bias depends on the key's position only: softmax
 * ignores what is added to a whole row, so slope·(key − query) and slope·key give the same weights.
 *
 *   const bias = alibiBias(spec.positions, spec.attention.heads, longest); // [heads × longest], row-major
 */
import type { Positions } from '../families/spec.ts';

export type AlibiPositions = Extract<Positions, { kind: 'alibi' }>;

/** The bias per head and key position, which attention adds to the scaled scores. */
export function alibiBias(positions: AlibiPositions, heads: number, lengthTokens: number): Float32Array {
  const bias = new Float32Array(heads * lengthTokens);
  alibiSlopes(heads).forEach((exact, head) => {
    const slope = positions.bfloat16 ? roundToBfloat16(exact) : exact;
    for (let key = 0; key < lengthTokens; key++) {
      // Falcon multiplies in bfloat16: positions past 256 are rounded before the product, and the product after it.
      const product = positions.bfloat16 ? roundToBfloat16(slope * roundToBfloat16(key)) : Math.fround(slope) * key;
      bias[head * lengthTokens + key] = product * positions.scale;
    }
  });
  return bias;
}

/**
 * The slopes: a geometric sequence if the number of heads is a power of two. Other counts take the rest from the next
 * power's sequence.
 */
export function alibiSlopes(heads: number): number[] {
  const whole = 2 ** Math.floor(Math.log2(heads));
  const base = 2 ** -(8 / whole);
  const slopes = Array.from({ length: whole }, (_, i) => base ** (i + 1));
  const between = 2 ** -(4 / whole);
  for (let i = 0; slopes.length < heads; i++) slopes.push(between ** (2 * i + 1));
  return slopes;
}

/** To the nearest bfloat16, ties to even. */
function roundToBfloat16(value: number): number {
  const float = new Float32Array([value]);
  const bits = new Uint32Array(float.buffer);
  const word = bits[0] ?? 0;
  bits[0] = (word + 0x7fff + ((word >>> 16) & 1)) & 0xffff0000;
  return float[0] ?? 0;
}
