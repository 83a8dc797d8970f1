import { expect, it } from 'vitest';
import { full, integers, scope } from '../../tensor/index.ts';
import { DrawnTokens } from './drawn-tokens.ts';

it('reads what was stored of tokens, log-probs and kept shares', () =>
  scope(() => {
    const drawn = new DrawnTokens(3, 5, 'cpu');
    const { ids, logp, kept } = drawn.tensors;
    ids.copy_(integers(Array.from({ length: 15 }, (_, i) => 10 ** 12 + i)).reshape(3, 5));
    logp.copy_(full([3, 5], -0.5));
    kept.copy_(full([3, 5], 0.25));
    logp.select(0, 2).fill_(-2);
    const read = drawn.read();
    expect([...read.ids]).toEqual(Array.from({ length: 15 }, (_, i) => BigInt(10 ** 12 + i)));
    expect([...read.logp]).toEqual([...Array(10).fill(-0.5), ...Array(5).fill(-2)]);
    expect([...read.kept]).toEqual(Array(15).fill(0.25));
    drawn.dispose();
  }));
