import { expect, it } from 'vitest';
import { Random } from '../random.ts';
import { computeDealt, cutEvenly, dealByCost, roundsBySize, roundsInOrder } from './deal.ts';
import { soloWorld } from './world.ts';

it('gives every piece to one rank, and no rank much more than another', () => {
  const costs = [5, 1, 9, 2, 2, 7, 3, 3];
  for (const ranks of [1, 2, 3, 4]) {
    const hands = dealByCost(costs, ranks);
    expect(hands.flat().sort((a, b) => a - b)).toEqual(costs.map((_, i) => i));
    const sums = hands.map((places) => places.reduce((sum, place) => sum + (costs[place] as number), 0));
    // Longest first is within 4/3 of the optimum (Graham 1969), which is at least the mean and the largest piece.
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

const sum = (values: readonly number[]) => values.reduce((all, value) => all + value, 0);

/** Consecutive pieces of at most `size`, filled from the first on. */
function filled(items: readonly number[], size: number): number[][] {
  const pieces: number[][] = [];
  for (const item of items) {
    const last = pieces.at(-1);
    if (last === undefined || sum(last) + item > size) pieces.push([item]);
    else last.push(item);
  }
  return pieces;
}

it('cuts work such that every rank has about as much', () => {
  const random = new Random('work');
  const items = Array.from({ length: 200 }, () => random.int(20, 120));
  const whole = sum(items);
  for (const [size, most] of [
    [2, 1e9],
    [2, 4000],
    [4, whole / 5], // five pieces for four ranks would leave three of them waiting
    [8, 700],
  ] as const) {
    const pieces = cutEvenly({ size }, { whole, most }, (each) => filled(items, each));
    expect(pieces.flat()).toEqual(items);
    const sizes = pieces.map(sum);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(most);
    const loads = dealByCost(sizes, size).map((places) => sum(places.map((place) => sizes[place] as number)));
    expect(Math.max(...loads)).toBeLessThan(1.08 * (whole / size));
  }
  expect(cutEvenly({ size: 1 }, { whole, most: 500 }, (each) => filled(items, each))).toEqual(filled(items, 500));
  // Fewer items than ranks, items larger than a piece may be, nothing at all.
  expect(cutEvenly({ size: 4 }, { whole: 7, most: 100 }, (each) => filled([3, 4], each))).toEqual([[3], [4]]);
  expect(cutEvenly({ size: 2 }, { whole: 60, most: 10 }, (each) => filled([20, 20, 20], each))).toHaveLength(3);
  expect(cutEvenly({ size: 2 }, { whole: 0, most: 10 }, (each) => filled([], each))).toEqual([]);
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
