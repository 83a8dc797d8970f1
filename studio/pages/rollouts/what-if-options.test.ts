import { describe, expect, it } from 'vitest';
import { picked } from './over-time-pick.ts';
import { actingOptions, changedOptions, written } from './what-if-options.ts';

describe('options of a what-if', () => {
  it('are read as the type they have, and left alone where nothing is typed', () =>
    expect(
      changedOptions(
        { clip_low: '0.1', advantage: 'group', norm: 'true', kl_coef: ' ', odd: 'x', name: '7', lr: '1e-3' },
        { clip_low: 0.2, advantage: 'loo', norm: false, kl_coef: 0, odd: 1, name: 'seven' },
      ),
    ).toEqual({ clip_low: 0.1, advantage: 'group', norm: true, odd: 'x', name: '7', lr: 0.001 }));

  it('are offered only where they can act on a stored step', () =>
    expect(
      actingOptions({ clipLow: 0.2, entropyCoef: 0, ppoEpochs: 1, targetKl: 0, overlongRamp: 0, klCoef: 0.1 }),
    ).toEqual([
      ['clipLow', 0.2],
      ['klCoef', 0.1],
    ]));

  it('are written as they would be typed', () =>
    expect([written(0.2), written('a'), written(null), written([1])]).toEqual(['0.2', 'a', 'not set', '[1]']));
});

describe('responses over time', () => {
  const row = (id: number, step: number, reward: number | null) => ({ id, step, reward, completion: '', length: 0 });
  const rows = [row(1, 1, 0.2), row(2, 1, 0.9), row(3, 2, null), row(4, 2, 0.1)];
  it.each([
    ['best', [2, 4]],
    ['first', [1, 3]],
    ['all', [1, 2, 3, 4]],
  ] as const)('%s', (pick, ids) => expect(picked(rows, pick).map(({ id }) => id)).toEqual(ids));
});
