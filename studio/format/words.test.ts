import { describe, expect, it } from 'vitest';
import { wordDifference, wordsOf } from './words.ts';

const written = (before: string, after: string) =>
  wordDifference(before, after)
    .map(({ kind, text }) => (kind === 'same' ? text : kind === 'gone' ? `[-${text}-]` : `{+${text}+}`))
    .join('');

describe('the word difference', () => {
  it.each([
    ['', '', ''],
    ['one two', 'one two', 'one two'],
    ['', 'a b', '{+a b+}'],
    ['a b', '', '[-a b-]'],
    ['the sum is 41.', 'the sum is 42.', 'the sum is [-41-]{+42+}.'],
    ['a b c', 'a c', 'a [-b -]c'],
    ['a c', 'a b c', 'a {+b +}c'],
    ['x = 3', 'x + y = 3', 'x {++ y +}= 3'],
  ])('%j → %j', (before, after, expected) => expect(written(before, after)).toBe(expected));

  it('joins to both texts again, and keeps a longest common part', () => {
    let seed = 7;
    const next = (n: number) => {
      seed = (seed * 16_807) % 2_147_483_647;
      return seed % n;
    };
    for (let round = 0; round < 50; round++) {
      const text = () => Array.from({ length: next(12) }, () => 'abc'[next(3)]).join(' ');
      const [before, after] = [text(), text()];
      const pieces = wordDifference(before, after);
      const without = (kind: string) => pieces.flatMap((piece) => (piece.kind === kind ? [] : [piece.text])).join('');
      expect([without('new'), without('gone')]).toEqual([before, after]);
      const same = pieces.flatMap((piece) => (piece.kind === 'same' ? wordsOf(piece.text) : [])).length;
      expect(same).toBe(longest(wordsOf(before), wordsOf(after)));
    }
  });

  it('gives up on the middle of very long texts instead of hanging', () => {
    const long = (word: string) => `start ${`${word} `.repeat(4000)}end`;
    expect(wordDifference(long('a'), long('b')).map(({ kind }) => kind)).toEqual(['same', 'gone', 'new', 'same']);
  });
});

/** The textbook recursion, as an independent check. */
function longest(a: string[], b: string[], i = 0, j = 0, seen = new Map<string, number>()): number {
  if (i === a.length || j === b.length) return 0;
  const key = `${i},${j}`;
  const known = seen.get(key);
  if (known !== undefined) return known;
  const result =
    a[i] === b[j]
      ? 1 + longest(a, b, i + 1, j + 1, seen)
      : Math.max(longest(a, b, i + 1, j, seen), longest(a, b, i, j + 1, seen));
  seen.set(key, result);
  return result;
}
