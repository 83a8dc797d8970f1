import { expect, it } from 'vitest';
import { computeDealt, dealByCost, microBatchSize, roundsBySize, roundsInOrder } from './deal.ts';
import { soloWorld } from './world.ts';

it('gives every piece to one rank, and no rank much more than another', () => {
  const costs = [5, 1, 9, 2, 2, 7, 3, 3];
  for (const ranks of [1, 2, 3, 4]) {
    const hands = dealByCost(costs, ranks);
    expect(hands.flat().sort((a, b) => a - b)).toEqual(costs.map((_, i) => i));
    const sums = hands.map((places) => places.reduce((sum, place) => sum + (costs[place] as number), 0));
    // Longest first is within 4/3 of the best there is (Graham 1969), which is at least the mean and the largest piece.
    expect(Math.max(...sums)).toBeLessThanOrEqual((4 / 3) * Math.max(32 / ranks, 9));
    for (const places of hands) expect(places).toEqual([...places].sort((a, b) => a - b));
  }
});

it('leaves ranks without work where there is too little', () => {
  expect(dealByCost([4], 3)).toEqual([[0], [], []]);
  expect(roundsInOrder(5, 4)).toEqual([[0, 1, 2, 3], [4]]);
  expect(roundsInOrder(2, 4)).toEqual([[0, 1]]);
  expect(roundsInOrder(0, 2)).toEqual([]);
  expect(roundsBySize([1, 9, 2, 8, 1], 2)).toEqual([[1, 3], [2, 0], [4]]);
});

it('makes micro-batches small enough that every rank has one', () => {
  expect(microBatchSize({ size: 1 }, 100, 1000)).toBe(100);
  expect(microBatchSize({ size: 4 }, 1000, 100)).toBe(27);
  expect(microBatchSize({ size: 4 }, 10, 100)).toBe(10);
});

it('keeps the order of results', async () => {
  const square = (x: number) => x * x;
  expect(await computeDealt(soloWorld, [3, 1, 2], (x) => x, square)).toEqual([9, 1, 4]);
  const pieces = [3, 1, 2, 5, 4];
  const hands = dealByCost(pieces, 2).map((places) =>
    places.map((place) => ({ place, result: square(pieces[place] as number) })),
  );
  const gather = async <T>() => hands as T[];
  expect(await computeDealt({ rank: 0, size: 2, gather }, pieces, (x) => x, square)).toEqual([9, 1, 4, 25, 16]);
});
