/** Which kept sequence a prompt continues, and the cost of the search. */
import { describe, expect, it } from 'vitest';
import { Random } from '../../../random.ts';
import { longestMatch, type Prefix } from './prefixes.ts';

const prefixOf = (prompt: ArrayLike<number>, written: number[] = [], weights = 'w'): Prefix => ({
  blocks: [],
  prompt,
  written,
  weights,
});

describe('longestMatch', () => {
  it('finds the longest beginning in common, as a search through all tokens does', () => {
    for (let round = 0; round < 300; round++) {
      const random = new Random('prefixes', round);
      const few = (most: number) => Array.from({ length: random.int(1, most) }, () => random.int(0, 1));
      const prompt = few(6);
      const prefixes = Array.from({ length: 6 }, () => prefixOf(few(5), few(4), random.int(0, 3) ? 'w' : 'other'));
      const shared = prefixes.map(({ prompt: first, written, weights }) => {
        const all = [...Array.from(first), ...written.slice(0, -1)]; // the newest token is not in the cache
        const end = all.findIndex((id, i) => id !== prompt[i]);
        return weights === 'w' ? Math.min(end < 0 ? all.length : end, prompt.length - 1) : 0;
      });
      const most = Math.max(...shared);
      const found = longestMatch(prompt, 'w', prefixes);
      if (most === 0 || most < prompt.length - most) expect(found).toBeNull();
      else expect(found).toEqual({ prefix: prefixes[shared.indexOf(most)], length: most });
    }
  });

  it('looks at a system prompt once, not once for each conversation that begins with it', () => {
    let looks = 0;
    const counted = (ids: number[]) =>
      new Proxy(ids, {
        get: (target, name) => {
          if (typeof name === 'string' && /^\d+$/.test(name)) looks++;
          return Reflect.get(target, name);
        },
      });
    const system = Array.from({ length: 1000 }, (_, i) => i % 7);
    const prefixes = Array.from({ length: 200 }, (_, i) => prefixOf(counted([...system, 10 + i, 5]), [8, 9]));
    expect(longestMatch([...system, 10 + 150, 6], 'w', prefixes)).toMatchObject({ length: 1001 });
    expect(looks).toBeLessThan(3000);
  });
});
