/** Numbers of a token as colour: how strong, and on which side. */
import type { RolloutToken } from '../../../src/studio/api.ts';

export const measures = ['logprob', 'entropy', 'ratio', 'advantage', 'clipped', 'kl', 'value'] as const;
export type Measure = (typeof measures)[number];

export const measureNames: Record<Measure, string> = {
  logprob: 'Log-prob',
  entropy: 'Entropy',
  ratio: 'Ratio',
  advantage: 'Advantage',
  clipped: 'Clip',
  kl: 'KL (k3)',
  value: 'Value',
};

/** `high`: warm, for what is surprising or punished. `low`: cool, for what is encouraged. */
export interface Shade {
  tone: 'high' | 'low';
  /** 0 to 1. */
  strength: number;
}

/** Which numbers the tokens have. */
export function measuresOf(tokens: readonly RolloutToken[]): Measure[] {
  return measures.filter((measure) => tokens.some((token) => token[measure] !== undefined && token[measure] !== null));
}

export interface Scale {
  measure: Measure;
  /** The value that is drawn in full strength. */
  full: number;
}

/**
 * A scale fitted to the tokens, but not so fine that rounding becomes colour. Log-probs have one scale for all, so that
 * responses can be compared: down to −5 nats, a probability below 1 %.
 */
export function scaleOf(tokens: readonly RolloutToken[], measure: Measure): Scale {
  const sizes = tokens.flatMap((token) => {
    const value = sized(measure, token[measure]);
    return value === undefined ? [] : [Math.abs(value)];
  });
  const largest = sizes.reduce((a, b) => Math.max(a, b), 0);
  const least = { logprob: 5, entropy: 1, ratio: 0.05, advantage: 0.1, clipped: 1, kl: 0.02, value: 0.1 }[measure];
  const most = { logprob: 5, entropy: 4, ratio: 2, advantage: 4, clipped: 1, kl: 4, value: 100 }[measure];
  return { measure, full: Math.min(most, Math.max(least, largest)) };
}

/** The colour of a token; undefined where the number is missing. */
export function shadeOf(token: RolloutToken, { measure, full }: Scale): Shade | undefined {
  const value = sized(measure, token[measure]);
  if (value === undefined) return undefined;
  const strength = Math.min(1, Math.abs(value) / full);
  const isGood = (measure === 'advantage' || measure === 'value' || measure === 'ratio') && value > 0;
  return { tone: isGood ? 'low' : 'high', strength };
}

/** Distance from what is unremarkable: a probability of 1, a ratio of 1, nothing clipped. */
function sized(measure: Measure, value: number | boolean | undefined | null): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (!Number.isFinite(value)) return undefined;
  return measure === 'ratio' ? Math.log(value) : value;
}

/** What a number is counted in. */
export const measureUnits: Partial<Record<Measure, string>> = { logprob: 'nats', entropy: 'nats', kl: 'nats' };

/** What the ends of the scale mean. */
export const legends: Record<Measure, { none: string; high: string; low?: string }> = {
  logprob: { none: 'certain', high: 'surprising' },
  entropy: { none: 'decided', high: 'undecided' },
  ratio: { none: 'unchanged', high: 'less likely now', low: 'more likely now' },
  advantage: { none: 'no gradient', high: 'made less likely', low: 'made more likely' },
  clipped: { none: 'free', high: 'gradient cut' },
  kl: { none: 'as the reference', high: 'unlike the reference' },
  value: { none: '0', high: 'negative', low: 'positive' },
};
