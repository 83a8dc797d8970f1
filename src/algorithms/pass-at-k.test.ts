import { describe, expect, it } from 'vitest';
import { meanPassAtK, passAtK } from './pass-at-k.ts';

/** The share of all k-subsets of n samples that contain a right one, by enumeration. */
function byCounting(n: number, correct: number, k: number): number {
  let hits = 0;
  let all = 0;
  for (let set = 0; set < 2 ** n; set++) {
    const members = Array.from({ length: n }, (_, i) => i).filter((i) => set & (1 << i));
    if (members.length !== k) continue;
    all++;
    if (members.some((i) => i < correct)) hits++;
  }
  return hits / all;
}

describe('pass@k', () => {
  it('is the share of subsets with a right sample', () => {
    for (const n of [1, 4, 7]) {
      for (let correct = 0; correct <= n; correct++) {
        for (let k = 1; k <= n; k++) expect(passAtK(n, correct, k)).toBeCloseTo(byCounting(n, correct, k), 12);
      }
    }
  });

  it('averages over prompts', () => {
    const prompts = [
      [true, false],
      [false, false],
    ];
    expect(meanPassAtK(prompts, 1)).toBeCloseTo(0.25, 12);
    expect(meanPassAtK(prompts, 2)).toBeCloseTo(0.5, 12);
  });

  it('refuses more than there are samples', () => {
    expect(() => passAtK(4, 1, 8)).toThrow('pass@8 wants at least 8 samples');
  });
});
