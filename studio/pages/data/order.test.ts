import { describe, expect, it } from 'vitest';
import { firstShown, inOrder } from './order.ts';

describe('the order of a pair', () => {
  it('is the same each time, and fair', () => {
    const firsts = Array.from({ length: 2000 }, (_, i) => firstShown('data/pairs.jsonl', i));
    expect(firstShown('data/pairs.jsonl', 7)).toBe(firsts[7]);
    const chosen = firsts.filter((first) => first === 'chosen').length;
    // Within four standard deviations of a half.
    expect(Math.abs(chosen - 1000)).toBeLessThan(90);
    const changes = firsts.slice(1).filter((first, i) => first !== firsts[i]).length;
    expect(Math.abs(changes - 1000)).toBeLessThan(90);
  });

  it('shows both, whichever is first in the data', () => {
    const responses = [
      { name: 'rejected', text: 'b' },
      { name: 'chosen', text: 'a' },
    ];
    const example = { index: 0, prompt: [], responses };
    expect(inOrder(example, 'chosen').map(({ text }) => text)).toEqual(['a', 'b']);
    expect(inOrder(example, 'rejected').map(({ text }) => text)).toEqual(['b', 'a']);
    expect(inOrder({ ...example, responses: [{ name: 'completion', text: 'a' }] }, 'chosen')).toEqual([]);
  });
});
