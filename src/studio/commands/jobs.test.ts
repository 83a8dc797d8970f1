import { expect, it } from 'vitest';
import { Jobs } from './jobs.ts';

it.each([
  ['train  50%  3/6 steps  1.2/s', { label: 'train', done: 3, total: 6 }],
  ['sft  0%  3/100k steps  0.6/s  48 h 37 min left', { label: 'sft', done: 3, total: 100_000 }],
  ['sampling  20%  20.4k/98.3k tokens  4081/s', { label: 'sampling', done: 20_400, total: 98_300 }],
  ['reward model  8%  8/100 steps', { label: 'reward model', done: 8, total: 100 }],
  ['half of it, 50% 1.2.3/6', undefined],
  ['run out/r, 100000 steps', undefined],
])('reads the progress in "%s"', (line, progress) => {
  const handle = new Jobs().begin({ kind: 'train', title: 't' });
  handle.line(line);
  expect(handle.job.progress).toEqual(progress);
  expect(handle.job.lines).toEqual([line]);
});
