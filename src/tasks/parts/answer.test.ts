import { describe, expect, it } from 'vitest';
import { numbersIn, readLine, readNumber, scoreItems, scoreNumber, taggedAnswer } from './answer.ts';

describe('the place of the answer', () => {
  it('is the last complete pair of tags', () => {
    expect(taggedAnswer('<answer>1</answer> no, <answer> 2 </answer>')).toBe('2');
    expect(taggedAnswer('<answer>1</answer> then <answer>2')).toBe('1');
    expect(taggedAnswer('1</answer>')).toBeUndefined();
    expect(taggedAnswer('<think><answer>3</answer>')).toBe('3');
  });

  it('is the last number where there are no tags', () => {
    expect(readNumber('3+4=7, so the answer is 7.')).toEqual({ value: '7', tidy: true });
    expect(readNumber('<think>1 2 3</think> It is 1,234.')).toEqual({ value: '1234', tidy: true });
    expect(readNumber('<think>1+1=2')).toBeUndefined();
    expect(readNumber('nothing')).toBeUndefined();
  });

  it('is the last line for words, without its wrapping', () => {
    expect(readLine('Well.\n\nThe answer is: "tac".\n\n')).toBe('tac');
    expect(readLine('Answer: **tac**')).toBe('tac');
    expect(readLine('<think>x</think>\ntac')).toBe('tac');
    expect(readLine('<think>tac')).toBeUndefined();
    expect(readLine('')).toBeUndefined();
  });
});

describe('numbers in a text', () => {
  it('have signs where no operand stands before them', () => {
    expect(numbersIn('5-3')).toEqual(['5', '3']);
    expect(numbersIn('5 - 3 = 2')).toEqual(['5', '3', '2']);
    expect(numbersIn('x = -3')).toEqual(['-3']);
    expect(numbersIn('it is \u22123.')).toEqual(['-3']);
    expect(numbersIn('4-7=-3')).toEqual(['4', '7', '-3']);
  });

  it('are written in one form', () => {
    expect(numbersIn('007, 7.0, 7.50, -0, 1,000,000')).toEqual(['7', '7', '7.5', '0', '1000000']);
    expect(numbersIn('r1c2 v3')).toEqual([]);
  });
});

describe('scores', () => {
  it('give half for a right number at the end of a list in the tags', () => {
    expect(scoreNumber('<answer>7</answer>', '7')).toBe(1);
    expect(scoreNumber('<answer>3+4=7</answer>', '7')).toBe(0.5);
    expect(scoreNumber('<answer>7 or 8</answer>', '7')).toBe(0);
    expect(scoreNumber('7 <answer>8</answer>', '7')).toBe(0);
  });

  it('give half the share of right places for lists', () => {
    expect(scoreItems(['a', 'b', 'c'], ['a', 'b', 'c'])).toBe(1);
    expect(scoreItems(['b', 'a', 'c'], ['a', 'b', 'c'])).toBeCloseTo(1 / 6);
    expect(scoreItems(['a', 'b', 'c', 'd'], ['a', 'b', 'c'])).toBe(0);
    expect(scoreItems([], [])).toBe(0);
  });

  it('stay fast on long and hostile responses', () => {
    const before = process.cpuUsage();
    for (const piece of ['<answer>', '1,', '-', '1', ' ', 'answer is ', '\n', '<think>']) {
      const response = piece.repeat(100_000 / piece.length);
      readNumber(response);
      readLine(response);
    }
    // Seconds of this process: others may keep it waiting.
    expect(process.cpuUsage(before).user / 1e6).toBeLessThan(2);
  });
});
