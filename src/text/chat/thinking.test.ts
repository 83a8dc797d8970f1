import { expect, it } from 'vitest';
import { splitThinking, stripThinking } from './thinking.ts';

it.each([
  ['plain text  ', '', 'plain text  '],
  ['<think>2+2</think>\n\n4', '2+2', '4'],
  ['<think>\n\n</think>\n\n4', '', '4'],
  ['well <think>a</think>b<think>c</think> d', 'a\nc', 'well b d'],
  ['<think>cut off by the t', 'cut off by the t', ''],
  ['4 <think>more', 'more', '4'],
  ['opened in the prompt</think> 4', 'opened in the prompt', '4'],
  ['x</think>4<think>y', 'x\ny', '4'],
])('splits %j', (text, thinking, answer) => {
  expect(splitThinking(text)).toEqual({ thinking, answer });
  expect(stripThinking(text)).toBe(answer);
});
