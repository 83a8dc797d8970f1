import { describe, expect, it } from 'vitest';
import { run } from './filter.test-support.ts';
import { meanCurve, seedGroups } from './seeds.ts';

const curve = (x: number[], y: (number | null)[]) => ({ x, y, step: x.map((at) => 10 * at) });

describe('runs that differ only by their seed', () => {
  it('are one group, named by what their names share', () => {
    const groups = seedGroups([
      run('sorting-seed-1', { setup: 'a', seed: 1 }),
      run('other', { setup: 'b', seed: 1 }),
      run('sorting-seed-2', { setup: 'a', seed: 2 }),
      run('old', { setup: 'a' }),
    ]);
    expect(groups.map(({ name, runs }) => [name, runs.length])).toEqual([
      ['sorting, 2 seeds', 2],
      ['other', 1],
      ['old', 1],
    ]);
    const unlike = seedGroups([run('x', { setup: 'a', seed: 1 }), run('y', { setup: 'a', seed: 2 })]);
    expect(unlike.map(({ name }) => name)).toEqual(['x, 2 seeds']);
  });

  it('are joined as far as all reach, straight between points', () => {
    const mean = meanCurve([curve([1, 2, 3, 4], [0, 1, 2, 9]), curve([1, 3], [2, 6])]);
    expect(mean).toEqual({
      x: [1, 2, 3],
      y: [1, 2.5, 4],
      step: [10, 20, 30],
      band: { low: [0, 1, 2], high: [2, 4, 6] },
    });
  });

  it('leave out what is not finite, and have no mean where one has no values', () => {
    expect(meanCurve([curve([1, 2, 3], [1, null, 3]), curve([1, 2, 3], [1, 2, 3])])?.y).toEqual([1, 2, 3]);
    expect(meanCurve([curve([1], [1]), curve([1], [null])])).toBeUndefined();
  });
});
