/**
 * Exchanges examples between the micro-batches of one step so that all have about as many tokens: processes that share
 * the step then end at the same time, and the largest batch takes less memory. A step's gradient is a sum over its
 * examples, however they are grouped.
 */
import { type Batch, packBatch, recordsOf } from './batch.ts';
import { recordTokens } from './record.ts';

/**
 * The same number of batches, with the same numbers of examples. The longest remaining example goes to the batch with
 * the fewest tokens among those with room (Graham 1969). If the largest batch would not become smaller, the batches
 * stay as they are.
 */
export function evenBatches(batches: readonly Batch[]): Batch[] {
  const records = batches.flatMap(recordsOf);
  const tokens = records.map(recordTokens);
  const hands = batches.map(({ examples }) => ({ room: examples, tokens: 0, places: [] as number[] }));
  const order = tokens.map((_, place) => place).sort((a, b) => (tokens[b] as number) - (tokens[a] as number) || a - b);
  for (const place of order) {
    const open = hands.filter(({ room, places }) => places.length < room);
    const least = open.reduce((best, hand) => (hand.tokens < best.tokens ? hand : best));
    least.tokens += tokens[place] as number;
    least.places.push(place);
  }
  const largest = (all: readonly { tokens: number }[]) => Math.max(...all.map((each) => each.tokens));
  if (batches.length < 2 || largest(hands) >= largest(batches)) return [...batches];
  return hands.map(({ places }) =>
    packBatch(places.sort((a, b) => a - b).map((place) => records[place] as (typeof records)[number])),
  );
}
