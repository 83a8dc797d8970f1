import { expect, it } from 'vitest';
import { pauseAfter } from './store.ts';

it('asks often at first, and loses at most a twentieth of the time', () => {
  expect([0, 10, 100, 300, 5000].map(pauseAfter)).toEqual([1, 1, 5, 15, 20]);
});
