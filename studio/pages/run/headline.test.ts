import { describe, expect, it } from 'vitest';
import { headlineOf } from './headline.ts';

const curve = (y: (number | null)[]) => ({ x: y.map((_, i) => i), y, step: y.map((_, i) => i) });

describe('the headline', () => {
  it('prefers held-out accuracy', () =>
    expect(
      headlineOf(
        new Map([
          ['train/reward', curve([0, 1])],
          ['eval/accuracy', curve([0.551, null, 0.7, 0.9456])],
        ]),
      ),
    ).toEqual({
      first: '55 %',
      last: '95 %',
      meaning: 'of held-out prompts answered right',
      metric: 'eval/accuracy',
    }));

  it('says of preferences that pairs are ranked', () => {
    const curves = new Map([['eval/accuracy', curve([0.5, 0.9])]]);
    const meaning = (kind: string) => headlineOf(curves, kind)?.meaning;
    expect(['policy', 'preference', 'reward'].map(meaning)).toEqual([
      'of held-out prompts answered right',
      'of held-out pairs ranked right',
      'of held-out judgements right',
    ]);
  });

  it('averages the ends of training, where a single step is noise', () => {
    const noisy = Array.from({ length: 40 }, (_, i) => (i < 20 ? 0.2 : 0.8) + (i % 2 ? 0.1 : -0.1));
    expect(headlineOf(new Map([['train/accuracy', curve(noisy)]]))).toMatchObject({ first: '20 %', last: '80 %' });
  });

  it('names the best where it is neither end', () => {
    const best = (name: string, y: (number | null)[]) => headlineOf(new Map([[name, curve(y)]]))?.best;
    expect(best('eval/accuracy', [0.24, null, 0.72, 0.71])).toBe('best 72 % at step 2');
    expect(best('eval/loss', [2, 1, 3])).toBe('best 1 at step 1');
    expect(best('eval/accuracy', [0.7, 0.6, 0.5])).toBeUndefined();
    expect(best('eval/accuracy', [0.2, 0.712, 0.708])).toBeUndefined();
  });

  it('says how far a held-out share may be off: Wilson’s interval of 24 of 48 is 36 to 64 %', () => {
    const curves = new Map([
      ['eval/accuracy', curve([0.5, null, 0.75])],
      ['eval/examples', curve([48, null, 48])],
    ]);
    expect(headlineOf(curves)?.certainty).toBe('n = 48, 95 % intervals 36–64 % and 61–85 %');
    curves.set('eval/examples', curve([48, null, 96]));
    expect(headlineOf(curves)?.certainty).toMatch(/^n = 48 and 96, /);
    curves.delete('eval/examples');
    expect(headlineOf(curves)).not.toHaveProperty('certainty');
  });

  it('gives the standard error of a held-out reward, and of a mean over steps', () => {
    const curves = new Map([
      ['eval/reward', curve([0, 1])],
      ['eval/examples', curve([25, 100])],
      ['eval/reward_std', curve([0.5, 0.5])],
    ]);
    expect(headlineOf(curves)?.certainty).toBe('n = 25 and 100, ±0.1 and ±0.05 (standard error)');
    // Deviation 0.1·√(8/7) of eight steps at ±0.1, over √8.
    const noisy = Array.from({ length: 40 }, (_, i) => (i < 20 ? 0.2 : 0.8) + (i % 2 ? 0.1 : -0.1));
    const training = headlineOf(new Map([['train/accuracy', curve(noisy)]]));
    expect(training?.certainty).toBe('means of 8 steps, ±0.0378 and ±0.0378 (standard error)');
  });

  it('says nothing of a single value', () => expect(headlineOf(new Map([['train/loss', curve([3])]]))).toBeUndefined());
});
