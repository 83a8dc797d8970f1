import { describe, expect, it } from 'vitest';
import { RecentSections } from './recent-sections.ts';

describe('sections encoded lately', () => {
  const long = 'a'.repeat(300);

  it('are encoded once, at the start and later apart', () => {
    const recent = new RecentSections();
    let calls = 0;
    const encode = () => [++calls];
    expect([...Array.from(recent.idsOf(long, true, encode)), ...Array.from(recent.idsOf(long, true, encode))]).toEqual([
      1, 1,
    ]);
    expect(Array.from(recent.idsOf(long, false, encode))).toEqual([2]);
    recent.idsOf('short', true, encode);
    recent.idsOf('short', true, encode);
    expect(calls).toBe(4);
  });

  it('leave when there are too many characters, the oldest first', () => {
    const recent = new RecentSections();
    const text = (i: number) => `${i} ${'x'.repeat(500_000)}`;
    let calls = 0;
    const ask = (i: number) => recent.idsOf(text(i), false, () => [++calls]);
    for (const i of [1, 2, 3, 4]) ask(i);
    ask(1); // used again, so 2 is the oldest
    ask(5);
    expect(recent.characters).toBeLessThanOrEqual(2 ** 21);
    ask(1);
    expect(calls).toBe(5);
    ask(2);
    expect(calls).toBe(6);
  });
});
