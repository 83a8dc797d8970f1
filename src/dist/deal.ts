/** Divides pieces of work over ranks, the same on every rank without communication. */
import { traced } from './trace.ts';
import type { World } from './world.ts';

/**
 * The pieces of each rank. The largest remaining piece goes to the rank with the least work so far (longest processing
 * time first, Graham 1969), and a rank's pieces stay in order.
 */
export function dealByCost(costs: readonly number[], ranks: number): number[][] {
  const hands = Array.from({ length: ranks }, () => ({ cost: 0, places: [] as number[] }));
  const order = costs.map((cost, place) => ({ cost, place })).sort((a, b) => b.cost - a.cost || a.place - b.place);
  for (const { cost, place } of order) {
    const least = hands.reduce((best, hand) => (hand.cost < best.cost ? hand : best));
    least.cost += cost;
    least.places.push(place);
  }
  return hands.map(({ places }) => places.sort((a, b) => a - b));
}

/** Rounds of one piece per rank, in the order of pieces: each round continues where the last one ended. */
export function roundsInOrder(count: number, ranks: number): number[][] {
  return Array.from({ length: Math.ceil(count / ranks) }, (_, round) =>
    Array.from({ length: Math.min(ranks, count - round * ranks) }, (_, rank) => round * ranks + rank),
  );
}

/** Rounds of pieces of similar cost, the largest first: the largest of a round makes all ranks wait. */
export function roundsBySize(costs: readonly number[], ranks: number): number[][] {
  const order = costs.map((_, i) => i).sort((a, b) => (costs[b] as number) - (costs[a] as number) || a - b);
  return roundsInOrder(order.length, ranks).map((round) => round.map((place) => order[place] as number));
}

/**
 * Pieces of at most `most` that give every rank about the same work: the same number for each rank, and as small as
 * that number allows. `cut` cuts the work, `whole` in total, into pieces of at most a given size.
 */
export function cutEvenly<T>(
  { size }: Pick<World, 'size'>,
  { whole, most }: { whole: number; most: number },
  cut: (size: number) => T[],
): T[] {
  if (size === 1) return cut(most);
  for (let rounds = Math.max(1, Math.ceil(whole / (size * most))); ; rounds++) {
    const count = rounds * size;
    for (let each = Math.max(1, whole / count); ; each *= 1.02) {
      const pieces = cut(Math.min(most, Math.ceil(each)));
      if (pieces.length <= count) return pieces;
      if (each >= most) break;
    }
  }
}

/** Computes each piece on one rank; every rank gets all results, in the order of the pieces. */
export async function computeDealt<Piece, Result>(
  world: Pick<World, 'rank' | 'size' | 'gather'>,
  pieces: readonly Piece[],
  cost: (piece: Piece) => number,
  compute: (piece: Piece) => Result | Promise<Result>,
): Promise<Result[]> {
  const places = dealByCost(pieces.map(cost), world.size)[world.rank] as number[];
  const own: { place: number; result: Result }[] = [];
  for (const place of places) own.push({ place, result: await traced('piece', () => compute(pieces[place] as Piece)) });
  if (world.size === 1) return own.map(({ result }) => result);
  const all = (await world.gather(own)).flat();
  return all.sort((a, b) => a.place - b.place).map(({ result }) => result);
}
