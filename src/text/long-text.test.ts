import { expect, it } from 'vitest';
import { isFarLonger } from './long-text.ts';

it('tells a text that is too long by its beginning, and says no where it is close', () => {
  const read: number[] = [];
  const tokenizer = {
    encode(text: string) {
      read.push(text.length);
      return text.split(' ').map(() => 1);
    },
  };
  expect(isFarLonger(tokenizer, 'word '.repeat(1_000_000), 10)).toBe(true);
  expect(isFarLonger(tokenizer, 'word '.repeat(11), 10)).toBe(false);
  expect(isFarLonger(tokenizer, 'x'.repeat(1_000_000), 10)).toBe(false); // this may be one long token
  expect(isFarLonger(tokenizer, 'word '.repeat(1000), Number.POSITIVE_INFINITY)).toBe(false);
  expect(Math.max(...read)).toBeLessThan(2000);
});
