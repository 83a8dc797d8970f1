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

  it('says nothing of a single value', () => expect(headlineOf(new Map([['train/loss', curve([3])]]))).toBeUndefined());
});
