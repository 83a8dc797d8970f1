import { expect, it } from 'vitest';
import { Random } from '../../random.ts';
import { packBatch, recordsOf } from './batch.ts';
import { evenBatches } from './even.ts';
import { recordTokens, type TokenRecord, type TokenSequence } from './record.ts';

const random = new Random('even');
/** A sequence with two stretches under loss and two labelled steps. */
function sequence(length: number): TokenSequence {
  const ids = Int32Array.from({ length }, () => random.int(0, 99));
  return {
    ids,
    promptLength: 2,
    spans: Int32Array.of(2, 4, 5, length),
    marks: Int32Array.of(3, 1, length - 1, -1),
  };
}
const record = (example: number, lengths: number[]): TokenRecord => ({
  sequences: lengths.map(sequence),
  example,
  label: example % 2 === 0,
  margin: example / 4,
  group: example % 3,
  source: -1,
});
const pairs = (lengths: number[][]) => lengths.map((each, i) => record(i, each));

it('gives back the records of a batch', () => {
  const records = pairs([
    [7, 9],
    [12, 6],
    [8, 8],
  ]);
  expect(recordsOf(packBatch(records))).toEqual(records);
  const single = pairs([[9], [11]]);
  expect(recordsOf(packBatch(single))).toEqual(single);
});

it('evens out the batches of a step, with the same examples and the same number in each', () => {
  const records = pairs(Array.from({ length: 8 }, () => [random.int(8, 40), random.int(8, 40)]));
  const cut = [0, 2, 4, 6].map((from) => packBatch(records.slice(from, from + 2)));
  const even = evenBatches(cut);
  expect(even.map(({ examples }) => examples)).toEqual([2, 2, 2, 2]);
  const spread = (batches: typeof cut) =>
    Math.max(...batches.map(({ tokens }) => tokens)) / Math.min(...batches.map(({ tokens }) => tokens));
  expect(spread(even)).toBeLessThan(1.15);
  expect(spread(even)).toBeLessThan(spread(cut));
  const found = even.flatMap(recordsOf).sort((a, b) => a.example - b.example);
  expect(found).toEqual(records);
});

it('keeps the sizes of batches that differ, and batches that are as even as they can be', () => {
  const records = pairs([[20], [21], [40], [9], [10]]);
  const cut = [packBatch(records.slice(0, 3)), packBatch(records.slice(3))];
  const even = evenBatches(cut);
  expect(even.map(({ examples }) => examples)).toEqual([3, 2]);
  expect(even.map(({ tokens }) => tokens)).toEqual([40 + 10 + 9, 21 + 20]);
  expect(evenBatches(even)).toEqual(even);
  const alone = [packBatch(records)];
  expect(evenBatches(alone)).toEqual(alone);
  expect(records.reduce((sum, each) => sum + recordTokens(each), 0)).toBe(100);
});
