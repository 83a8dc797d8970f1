import { expect, it } from 'vitest';
import { table } from './explore.ts';

it('keeps the numbers of a table apart, however long they are', () => {
  const long = {
    mean: 1_234_567,
    std: 12_345_678,
    median: 9,
    p90: 123_456_789,
    p99: 1_234_567_890,
    max: 9_876_543_210,
  };
  const lines = table('Characters', { prompt: long, 'a very long name': { ...long, mean: 1 } } as never);
  expect(new Set(lines.map(({ length }) => length)).size).toBe(1);
  expect(lines[1]?.trim().split(/ {2,}/)).toEqual([
    ...['prompt', '1,234,567', '12,345,678', '9', '123,456,789', '1,234,567,890', '9,876,543,210'],
  ]);
  expect(lines[2]).toMatch(/^ {2}a very long name {2,}1 /);
});
