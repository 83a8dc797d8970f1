/**
 * Rotary frequencies (Su et al. 2021, arXiv:2104.09864) and the scalings that stretch them to longer contexts, with the
 * constants of the published checkpoints. Pure numbers: the decoder turns them into cosines and sines.
 *
 *   const { inverseFrequencies, attentionScale } = ropeFrequencies(spec.positions, longest);
 *   // angle of pair i at position p: p · inverseFrequencies[i]; cos and sin are multiplied by attentionScale
 */
import type { Positions, RopeScaling } from '../families/spec.ts';

export type RopePositions = Extract<Positions, { kind: 'rope' }>;

export interface RopeFrequencies {
  /** One per rotated pair, rotaryDim / 2 in all. */
  inverseFrequencies: Float64Array;
  /** Multiplies cosines and sines (YaRN's temperature); 1 elsewhere. */
  attentionScale: number;
}

/**
 * Rounds to float32. Models are trained with tables in float32, and a position in the thousands multiplies a frequency's
 * rounding error, so every step is rounded as in training.
 */
const round = Math.fround;

/** The frequencies. `lengthTokens`, the length of the sequence, matters for dynamic scaling only. */
export function ropeFrequencies(positions: RopePositions, lengthTokens = 0): RopeFrequencies {
  const { scaling } = positions;
  const dim = positions.exponentDim ?? positions.rotaryDim;
  const stretched = scaling?.kind === 'dynamic' && lengthTokens > scaling.originalMax;
  const theta = stretched ? stretchedTheta(positions.theta, scaling, dim, lengthTokens) : positions.theta;
  const periods = new Float64Array(positions.rotaryDim / 2);
  for (let i = 0; i < periods.length; i++) periods[i] = round(theta ** round((2 * i) / dim));
  if (scaling?.kind === 'yarn') return yarn(periods, theta, dim, scaling);
  const inverseFrequencies = periods.map((period) => scaled(round(1 / period), scaling));
  return { inverseFrequencies, attentionScale: 1 };
}

/** Whether the frequencies depend on the length of the sequence, so that a table cannot be kept for all lengths. */
export function ropeDependsOnLength(positions: RopePositions): boolean {
  return positions.scaling?.kind === 'dynamic';
}

/** The rotation angle of a pair at a position. */
export function ropeAngle(position: number, inverseFrequency: number): number {
  return round(position * inverseFrequency);
}

type Scaling<Kind extends RopeScaling['kind']> = Extract<RopeScaling, { kind: Kind }>;

function scaled(frequency: number, scaling: RopeScaling | undefined): number {
  if (scaling?.kind === 'linear') return round(frequency / scaling.factor);
  return scaling?.kind === 'llama3' ? llama3(frequency, scaling) : frequency;
}

/** NTK-aware: the base grows with the length, θ·(factor·length/original − (factor − 1))^(d/(d−2)), beyond the original. */
function stretchedTheta(theta: number, scaling: Scaling<'dynamic'>, dim: number, lengthTokens: number): number {
  const { factor, originalMax } = scaling;
  const ratio = round(round(round(factor * lengthTokens) / originalMax) - (factor - 1));
  return round(theta * round(ratio ** (dim / (dim - 2))));
}

/** Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended linearly. */
function llama3(frequency: number, scaling: Scaling<'llama3'>): number {
  const { factor, lowFrequencyFactor: low, highFrequencyFactor: high, originalMax } = scaling;
  const wavelength = round(round(1 / frequency) * round(2 * Math.PI));
  if (wavelength < originalMax / high) return frequency;
  if (wavelength > originalMax / low) return round(frequency / factor);
  const smooth = round(round(round(round(1 / wavelength) * originalMax) - low) / (high - low));
  return round(round(round(round(1 - smooth) * frequency) / factor) + round(smooth * frequency));
}

/** YaRN (Peng et al. 2023, arXiv:2309.00071): pairs that turn often are kept, those that turn rarely are interpolated. */
function yarn(periods: Float64Array, theta: number, dim: number, scaling: Scaling<'yarn'>): RopeFrequencies {
  const { factor, originalMax, betaFast, betaSlow, truncate } = scaling;
  // The (fractional) pair that makes this many turns within the original context.
  const pairWith = (turns: number) => (dim * Math.log(originalMax / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const first = truncate ? Math.floor(pairWith(betaFast)) : pairWith(betaFast);
  const last = truncate ? Math.ceil(pairWith(betaSlow)) : pairWith(betaSlow);
  const low = Math.max(first, 0);
  const high = Math.min(last, dim - 1);
  const width = round(high === low ? 0.001 : high - low);
  const inverseFrequencies = periods.map((period, i) => {
    const kept = round(1 - round(Math.min(Math.max(round(round(i - round(low)) / width), 0), 1)));
    const interpolated = round(round(1 / round(factor * period)) * round(1 - kept));
    return round(interpolated + round(round(1 / period) * kept));
  });
  return { inverseFrequencies, attentionScale: scaling.attentionFactor };
}
