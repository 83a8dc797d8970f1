/** Lists of numbers that Node finds equal are those that vitest finds equal; see support/equality.ts. */
import { describe, expect, it } from 'vitest';
import { equalNumbers } from './support/equality.ts';

const same: [string, unknown, unknown][] = [
  ['arrays', [1, Number.NaN, -0], [1, Number.NaN, -0]],
  ['floats', Float32Array.of(1, Number.NaN, -0), Float32Array.of(1, Number.NaN, -0)],
  ['bytes', Buffer.from('abc'), Buffer.from('abc')],
];
const different: [string, unknown, unknown][] = [
  ['a number', [1, 2], [1, 3]],
  ['the sign of zero', [1, 0], [1, -0]],
  ['the sign of zero, in floats', Float32Array.of(0), Float32Array.of(-0)],
  ['the last byte', Buffer.from('abc'), Buffer.from('abd')],
  ['the length', [1, 2], [1, 2, 3]],
  ['the type', Float32Array.of(1), Float64Array.of(1)],
  ['a name beside the numbers', Object.assign([1], { name: 'x' }), [1]],
  ['an object among them', [1, { a: 1 }], [1, { a: 2 }]],
];

describe('lists of numbers', () => {
  it.each(same)('that are equal: %s', (_, a, b) => {
    expect(equalNumbers(a, b)).toBe(true);
    expect(a).toEqual(b);
    expect({ within: [a] }).toStrictEqual({ within: [b] });
  });

  it.each(different)('that differ in %s', (_, a, b) => {
    expect(equalNumbers(a, b)).toBeUndefined();
    expect(a).not.toEqual(b);
    expect({ within: [a] }).not.toEqual({ within: [b] });
  });

  it('and what is no number is left to vitest', () => {
    for (const value of [[], ['a'], {}, 7, null]) expect(equalNumbers(value, value)).toBeUndefined();
    expect([1, 2]).toEqual([1, expect.any(Number)]);
    expect([1, 2]).not.toEqual([1, expect.any(String)]);
  });
});
