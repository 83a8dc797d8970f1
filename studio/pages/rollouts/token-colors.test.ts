import { describe, expect, it } from 'vitest';
import type { RolloutToken } from '../../../src/studio/api.ts';
import { measuresOf, scaleOf, shadeOf } from './token-colors.ts';

const token = (more: Partial<RolloutToken>): RolloutToken => ({ id: 1, text: 'a', logprob: -1, advantage: 0, ...more });

describe('tokens in colour', () => {
  it('offers only what is recorded', () => {
    expect(measuresOf([token({})])).toEqual(['logprob', 'advantage']);
    expect(measuresOf([token({}), token({ ratio: 1, clipped: false })])).toEqual([
      'logprob',
      'ratio',
      'advantage',
      'clipped',
    ]);
  });

  it('draws the surprising strongly and the certain not at all', () => {
    const tokens = [token({ logprob: 0 }), token({ logprob: -5 }), token({ logprob: -2.5 }), token({ logprob: -9 })];
    const scale = scaleOf(tokens, 'logprob');
    expect(tokens.map((each) => shadeOf(each, scale)?.strength)).toEqual([0, 1, 0.5, 1]);
  });

  it('does not turn rounding into colour', () => {
    const tokens = [token({ ratio: 1.0000004 }), token({ ratio: 0.9999996 })];
    const scale = scaleOf(tokens, 'ratio');
    for (const each of tokens) expect(shadeOf(each, scale)?.strength).toBeLessThan(0.001);
  });

  it('takes sides: encouraged cool, punished warm, ratios by their logarithm', () => {
    const [up, down] = [token({ ratio: 2, advantage: 1 }), token({ ratio: 0.5, advantage: -1 })];
    for (const measure of ['ratio', 'advantage'] as const) {
      const scale = scaleOf([up, down], measure);
      expect([shadeOf(up, scale)?.tone, shadeOf(down, scale)?.tone]).toEqual(['low', 'high']);
      expect(shadeOf(up, scale)?.strength).toBeCloseTo(shadeOf(down, scale)?.strength as number, 12);
    }
    expect(shadeOf(token({}), { measure: 'kl', full: 1 })).toBeUndefined();
  });
});
