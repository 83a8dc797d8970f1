import { describe, expect, it } from 'vitest';
import { adaptedKlCoef } from './adaptive-kl.ts';
import { bestOfGroup, inMixedGroup, overlongPenalty, withEosPenalty } from './reward-shaping.ts';

describe('reward shaping', () => {
  it('punishes overlong responses by a ramp', () => {
    // L = 100, C = 20: free up to 80, half way at 90, full from 100
    const at = [10, 80, 85, 90, 99, 100, 130].map((length) => overlongPenalty(length, 100, 20));
    expect(at.map((value) => value + 0)).toEqual([0, 0, -0.25, -0.5, -0.95, -1, -1]);
  });

  it('takes the EOS penalty off cut responses only', () => {
    expect([withEosPenalty(0.5, true, 1), withEosPenalty(0.5, false, 1)]).toEqual([0.5, -0.5]);
  });

  it('drops groups that are all right or all wrong', () => {
    const kept = inMixedGroup([1, 1, 0, 0, true, false, 1], [0, 0, 1, 1, 2, 2, 3]);
    expect(kept).toEqual([false, false, false, false, true, true, false]);
  });

  it('keeps the best of each group, the first of several, and none of equal ones', () => {
    const rewards = [0.5, 2, 2, -1, 0, 0, 0, 3, -4, -4.5, Number.NEGATIVE_INFINITY];
    const groups = [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 4];
    const kept = bestOfGroup(rewards, groups).flatMap((isKept, i) => (isKept ? [i] : []));
    // group 2 has equal rewards, group 3 a single response
    expect(kept).toEqual([1, 4, 8]);
  });

  it('steers the KL coefficient, by two per cent a step at most', () => {
    expect(adaptedKlCoef(0.1, 6, 6)).toBe(0.1);
    expect(adaptedKlCoef(0.1, 6.6, 6)).toBeCloseTo(0.101, 12);
    expect(adaptedKlCoef(0.1, 60, 6)).toBeCloseTo(0.102, 12);
    expect(adaptedKlCoef(0.1, 0, 6)).toBeCloseTo(0.098, 12);
  });
});
