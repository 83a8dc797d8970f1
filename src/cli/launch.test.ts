import { expect, it } from 'vitest';
import { crowdNotes } from './launch.ts';

it('says when there are more processes than cores', () => {
  expect(crowdNotes(2, 2, '1')).toEqual([]);
  expect(crowdNotes(99, 2, '1')).toEqual([
    'Attention: 99 processes on 2 cores: each gets 1 thread, and they take turns. On CPUs, more than 2 make nothing faster, and each needs memory of its own.',
  ]);
  expect(crowdNotes(2, 1, '4')[0]).toContain('on 1 core: each gets 4 threads');
});
