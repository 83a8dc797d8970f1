import { describe, expect, it } from 'vitest';
import { href, parseRoute } from './router.ts';

describe('addresses', () => {
  it.each([
    ['', { path: [], query: {} }],
    ['#/', { path: [], query: {} }],
    ['#/runs/3f2a', { path: ['runs', '3f2a'], query: {} }],
    ['#/runs/a%2Fb/rollouts?step=3&q=1%2B1', { path: ['runs', 'a/b', 'rollouts'], query: { step: '3', q: '1+1' } }],
    ['#/chat?x=a?b', { path: ['chat'], query: { x: 'a?b' } }],
    ['#/runs/100%', { path: ['runs', '100%'], query: {} }],
  ])('%s', (hash, expected) => expect(parseRoute(hash)).toEqual(expected));

  it('are written as they are read, without what is empty', () => {
    const query = { q: 'a & b = "c" #?', step: 0, flag: true, off: false, none: undefined, empty: '' };
    const written = href(['runs', 'strange / name?', 'rollouts'], query);
    expect(parseRoute(written)).toEqual({
      path: ['runs', 'strange / name?', 'rollouts'],
      query: { q: 'a & b = "c" #?', step: '0', flag: '1' },
    });
    expect(href(['runs'])).toBe('#/runs');
  });
});
