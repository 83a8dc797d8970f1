import { describe, expect, it } from 'vitest';
import { Random } from '../../random.ts';
import { type Expression, exactValue, leavesOf, parseExpression, writeExpression } from './expression.ts';

const value = (text: string) => {
  const tree = parseExpression(text);
  return tree === undefined ? undefined : exactValue(tree);
};

describe('expressions', () => {
  it('follow precedence and go from left to right', () => {
    expect(value('2+3*4')).toEqual({ top: 14, bottom: 1 });
    expect(value('(2+3)*4')).toEqual({ top: 20, bottom: 1 });
    expect(value('10-4-3')).toEqual({ top: 3, bottom: 1 });
    expect(value('48/4/2')).toEqual({ top: 6, bottom: 1 });
    expect(value('7 \u00d7 6 \u2212 8 \u00f7 6')).toEqual({ top: 122, bottom: 3 });
    expect(value('1/3+1/6')).toEqual({ top: 1, bottom: 2 });
    expect(value('2-5')).toEqual({ top: -3, bottom: 1 });
  });

  it('are refused where they are none', () => {
    for (const text of ['', '2+', '(2', '2)', '2 3', 'a+1', '-2', '2**3', '1.5', '()', 'process.exit()']) {
      expect(parseExpression(text), text).toBeUndefined();
    }
    expect(value('1/(2-2)')).toBeUndefined();
    expect(value(`${'9'.repeat(15)}*${'9'.repeat(15)}`)).toBeUndefined();
    expect(parseExpression('('.repeat(100_000))).toBeUndefined();
    expect(parseExpression(`${'('.repeat(150)}1${')'.repeat(150)}`)).toBe(1);
  });

  it('keep their shape when written and read again', () => {
    const random = new Random('trees');
    const tree = (depth: number): Expression =>
      depth === 0 || random.chance(0.3)
        ? random.int(1, 99)
        : { op: random.pick(['+', '-', '*', '/'] as const), left: tree(depth - 1), right: tree(depth - 1) };
    for (let i = 0; i < 2000; i++) {
      const made = tree(4);
      expect(parseExpression(writeExpression(made, ' '))).toEqual(made);
      expect(leavesOf(made).join()).toBe(writeExpression(made).match(/\d+/g)?.join());
    }
  });
});
