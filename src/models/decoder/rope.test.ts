import { describe, expect, it } from 'vitest';
import type { RopeScaling } from '../families/spec.ts';
import { alibiBias, alibiSlopes } from './alibi.ts';
import { type RopePositions, ropeDependsOnLength, ropeFrequencies } from './rope.ts';

const rope = (theta: number, scaling?: RopeScaling): RopePositions => ({
  kind: 'rope',
  theta,
  rotaryDim: 16,
  interleaved: false,
  ...(scaling ? { scaling } : {}),
});
const yarn = { kind: 'yarn', betaFast: 32, betaSlow: 1, truncate: true } as const;

/** Frequencies and temperatures of transformers 5.18 (float32) for heads of 16. */
const frozen: [name: string, positions: RopePositions, length: number, expected: number[], attentionScale: number][] = [
  [
    'default',
    rope(500000),
    0,
    [1.0, 0.19392276, 0.037606031, 0.0072926651, 0.0014142134, 0.00027424819, 5.3182957e-5, 1.0313385e-5],
    1,
  ],
  [
    'linear',
    rope(10000, { kind: 'linear', factor: 4 }),
    0,
    [0.25, 0.079056941, 0.025, 0.0079056947, 0.0024999999, 0.00079056947, 0.00025000001, 7.9056947e-5],
    1,
  ],
  [
    'dynamic beyond the original length',
    rope(10000, { kind: 'dynamic', factor: 2, originalMax: 4096 }),
    5000,
    [1.0, 0.30013472, 0.09008085, 0.027036389, 0.0081145586, 0.0024354609, 0.00073096628, 0.00021938836],
    1,
  ],
  [
    'dynamic within it',
    rope(10000, { kind: 'dynamic', factor: 2, originalMax: 4096 }),
    100,
    [1.0, 0.31622776, 0.1, 0.031622779, 0.0099999998, 0.0031622779, 0.001, 0.00031622779],
    1,
  ],
  [
    'llama3',
    rope(500000, { kind: 'llama3', factor: 8, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalMax: 2048 }),
    0,
    [1.0, 0.19392276, 0.037606031, 0.0038405829, 0.00017677668, 3.4281024e-5, 6.6478697e-6, 1.2891732e-6],
    1,
  ],
  [
    'yarn',
    rope(1e6, { ...yarn, factor: 4, originalMax: 1024, attentionFactor: 1.138629436111989 }),
    0,
    [1.0, 0.13337095, 0.015811389, 0.0014058533, 0.00025000001, 4.4456985e-5, 7.9056936e-6, 1.4058534e-6],
    1.138629436111989,
  ],
  [
    'yarn without rounding its range',
    rope(10000, {
      kind: 'yarn',
      factor: 16,
      originalMax: 4096,
      betaFast: 24,
      betaSlow: 2,
      attentionFactor: 0.94,
      truncate: false,
    }),
    0,
    [1.0, 0.31622776, 0.1, 0.029808825, 0.0050828066, 0.00023376691, 6.2500003e-5, 1.9764237e-5],
    0.94,
  ],
];

describe('ropeFrequencies', () => {
  it.each(frozen)('%s', (_, positions, length, expected, attentionScale) => {
    const found = ropeFrequencies(positions, length);
    expect(found.inverseFrequencies.length).toBe(8);
    expected.forEach((value, i) => {
      expect(Math.abs((found.inverseFrequencies[i] as number) / value - 1)).toBeLessThan(3e-7);
    });
    expect(found.attentionScale).toBe(attentionScale);
  });

  it('turns one dimension more where the share of the head is odd', () => {
    const { inverseFrequencies } = ropeFrequencies({ ...rope(10000), rotaryDim: 6, exponentDim: 5 });
    [1, 0.025118863, 0.00063095731].forEach((value, i) => {
      expect(Math.abs((inverseFrequencies[i] as number) / value - 1)).toBeLessThan(3e-7);
    });
  });

  it('says when a table holds for one length only', () => {
    expect(ropeDependsOnLength(rope(10000, { kind: 'dynamic', factor: 2, originalMax: 8 }))).toBe(true);
    expect(ropeDependsOnLength(rope(10000, { kind: 'linear', factor: 2 }))).toBe(false);
  });
});

describe('alibi', () => {
  /** build_alibi_tensor of transformers 5.18 for 6 heads at positions 1, 7, 100, 513 and 1000. */
  const at = [1, 7, 100, 513, 1000];
  const rows = (bias: Float32Array) => [0, 1, 4].map((head) => at.map((key) => bias[head * 1001 + key]));

  it("gives BLOOM's biases", () => {
    expect(rows(alibiBias({ kind: 'alibi', scale: 1, bfloat16: false }, 6, 1001))).toEqual([
      [0.25, 1.75, 25, 128.25, 250],
      [0.0625, 0.4375, 6.25, 32.0625, 62.5],
      [0.5, 3.5, 50, 256.5, 500],
    ]);
  });

  it("gives Falcon's, rounded to bfloat16 and scaled", () => {
    expect(rows(alibiBias({ kind: 'alibi', scale: 0.5, bfloat16: true }, 6, 1001))).toEqual([
      [0.125, 0.875, 12.5, 64, 125],
      [0.03125, 0.21875, 3.125, 16, 31.25],
      [0.25, 1.75, 25, 128, 250],
    ]);
  });

  it('interleaves the slopes of the next power of two', () => {
    expect(alibiSlopes(3)).toEqual([2 ** -4, 2 ** -8, 2 ** -2]);
    expect(alibiSlopes(8)).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((power) => 2 ** -power));
  });
});
